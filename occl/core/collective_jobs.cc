// Jobs: what each rank would do of an exchange of all with all, done by whoever has a processor.
//
// Where ranks share processors, most of them sleep when the last one comes. To wake each so that it
// does its part costs more than the part. So a rank that has seen the entries of all takes jobs,
// its own first, until none is left, and who ends the last one wakes the others: a rank sleeps once
// in an operation and is woken once, when all is done. Of the other processors each is given one
// rank.
//
// All jobs of a round done: nobody reads or writes a buffer of it any more. A job that has been
// taken by a rank that stops is waited for, as that rank's own part would be.
#include "occl/core/collective_op.h"

namespace occl {
namespace {

// Below this, what is to be moved in all is done before another rank is awake.
constexpr uint64_t kWorthHelpBytes = 512 * 1024;

}  // namespace

bool CollectiveOp::HasJobs() const {
  return path_ == DataPath::kDirect && !spec_.uneven && comm().crowded() && ExchangesWithAll();
}

// kMoved: a job is in hand, or all are taken and the round has ended for this rank.
StepResult CollectiveOp::TakeJob() {
  const int n = comm().nranks(), rank = comm().rank();
  const bool first = jobs_seen_ == 0 && NoJobTaken();
  for (; jobs_seen_ < n; ++jobs_seen_) {
    const int job = (rank + jobs_seen_) % n;
    std::atomic<uint64_t>& taken = comm().segment().job(job, round_).taken;
    uint64_t word = taken.load(std::memory_order_relaxed);
    if (word >= JobWord(round_, 0) ||
        !taken.compare_exchange_strong(word, JobWord(round_, rank), std::memory_order_acq_rel)) {
      continue;
    }
    doer_ = job;
    peer_ = 0;
    position_ = 0;
    if (first) CallHelpers();
    return LookBeforeWriting();
  }
  return EndRound();
}

bool CollectiveOp::NoJobTaken() const {
  for (int job = 0; job < comm().nranks(); ++job) {
    const auto& taken = comm().segment().job(job, round_).taken;
    if (taken.load(std::memory_order_relaxed) >= JobWord(round_, 0)) return false;
  }
  return true;
}

// By who takes the first job.
void CollectiveOp::CallHelpers() {
  const uint64_t parts = spec_.part_per_rank ? comm().nranks() : 1;
  const uint64_t bytes = spec_.count * spec_.element_bytes * parts * comm().nranks();
  if (bytes >= kWorthHelpBytes) comm().bells.RingSome(comm().processors() - 1);
}

StepResult CollectiveOp::EndJob() {
  comm().segment().job(doer_, round_).done.store(round_, std::memory_order_release);
  doer_ = -1;
  FullFence();
  if (AllJobsDone()) comm().bells.RingAll();
  return StepResult::kMoved;
}

bool CollectiveOp::AllJobsDone() {
  for (; jobs_done_ < comm().nranks(); ++jobs_done_) {
    const auto& done = comm().segment().job(jobs_done_, round_).done;
    if (done.load(std::memory_order_acquire) < round_) return false;
  }
  return true;
}

bool CollectiveOp::WaitsForJobOf(int rank) const {
  for (int job = 0; job < comm().nranks(); ++job) {
    const JobWords& words = comm().segment().job(job, round_);
    if (words.taken.load(std::memory_order_acquire) == JobWord(round_, rank) &&
        words.done.load(std::memory_order_acquire) < round_) {
      return true;
    }
  }
  return false;
}

}  // namespace occl
