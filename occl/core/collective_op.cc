#include "occl/core/collective_op.h"

#include <algorithm>
#include <cstring>

#include "occl/base/datatypes.h"
#include "occl/core/algorithms.h"
#include "occl/schedule/choice.h"

namespace occl {

CollectiveOp::CollectiveOp(Ref<Comm> comm) : CommOp(std::move(comm), OpKind::kNumKinds) {}

void CollectiveOp::Describe(occlOpRecord_t* record) const {
  record->sequence = sequence_;
  record->datatype = spec_.datatype;
  record->op = static_cast<occlRedOp_t>(spec_.op);
  record->root = spec_.root;
  record->tag = -1;
  record->count = spec_.count;
}

void CollectiveOp::DoFinish(bool success) {
  if (!success) {
    if (phase_ > Phase::kPlace) LeaveRound();
    return;
  }
  CollectiveStats& stats = comm().collective_stats;
  Counter& algorithm = path_ == DataPath::kDirect              ? stats.direct
                       : window_start_ > 0 || !comm().direct() ? stats.staged
                                                               : stats.oneshot;
  algorithm.AddAlone(1);
  stats.operations.AddAlone(1);
  if (on_caller()) stats.inline_operations.AddAlone(1);
  comm().PassTurn();
  comm().bells.RingAll();  // also for this rank's next collective
}

// Sleepers are told when this rank has waited for a moment itself, sleeps or is done, which for all
// but large operations is at once: the fence would wait until the stores have reached the other
// processors. Where ranks share processors somebody sleeps most of the time.
void CollectiveOp::Ring() {
  constexpr uint64_t kSoonDoneBytes = 128 * 1024;
  polls_ = 0;
  ring_needed_ = true;
  if (path_ == DataPath::kDirect &&
      (comm().crowded() || spec_.count * spec_.element_bytes > kSoonDoneBytes)) {
    TellSleepers();
  }
}

// Of its entry: where ranks share processors, a rank that needs the entries of all would be woken
// by each, mostly for nothing. Of those who post last and look for the others' entries, with a
// fence in between (Announce), one sees them all, so it is enough that who does tells the others.
void CollectiveOp::RingForEntry() {
  if (!comm().crowded() || !ExchangesWithAll()) Ring();
}

void CollectiveOp::TellSleepers() {
  if (!ring_needed_) return;
  ring_needed_ = false;
  comm().bells.RingAll();
}

// The operation has failed in the middle of a round. It is the last collective that has begun, and
// no other begins.
void CollectiveOp::LeaveRound() {
  comm().block(comm().rank()).quit.store(1, std::memory_order_release);
  if (writes_to_peers() && HasResult(comm().rank()) && comm().nranks() > 1) {
    comm().quarantine.Take(comm().DevicePointer(spec_.recv), round_);
  }
  comm().bells.RingAll();
}

StepResult CollectiveOp::Step() {
  constexpr int kPollsBeforeRinging = 16;
  const StepResult result = RunPhases();
  if (result == StepResult::kWaiting && ring_needed_ && ++polls_ > kPollsBeforeRinging) {
    TellSleepers();
  }
  return result;
}

StepResult CollectiveOp::RunPhases() {
  StepResult result = StepResult::kMoved;
  switch (phase_) {
    case Phase::kTurn:
      if (comm().turn() != sequence_) return StepResult::kWaiting;
      phase_ = Phase::kPlace;
      round_ = comm().next_round;
      [[fallthrough]];
    case Phase::kPlace:
      result = WaitForPlace();
      if (result != StepResult::kMoved) return result;
      [[fallthrough]];
    case Phase::kAgree:
      result = Agree();
      if (result != StepResult::kMoved) return result;
      [[fallthrough]];
    case Phase::kMove:
      result = Move();
      if (result != StepResult::kMoved || phase_ == Phase::kMove) return result;
      return AwaitReaders();
    case Phase::kReaders:
      return AwaitReaders();
  }
  return result;
}

// The place of this round was used kRoundPlaces rounds ago: all ranks must have passed that one.
StepResult CollectiveOp::WaitForPlace() {
  if (round_ > kRoundPlaces && comm().slowest_done < round_ - kRoundPlaces) {
    uint64_t slowest = UINT64_MAX;
    for (int r = 0; r < comm().nranks(); ++r) {
      if (r == comm().rank()) continue;
      slowest = std::min(slowest, comm().block(r).done.load(std::memory_order_acquire));
    }
    comm().slowest_done = slowest;
    if (slowest < round_ - kRoundPlaces) return StepResult::kWaiting;
  }
  if (window_start_ == 0) {
    const StepResult result = MeetFault(-1, sequence_);
    if (result != StepResult::kMoved) return result;
  }
  Post();
  Started();
  peer_ = 0;
  agreed_more_ = false;
  phase_ = Phase::kAgree;
  return StepResult::kMoved;
}

bool CollectiveOp::shared_out() const {
  if (path_ != DataPath::kDirect || spec_.uneven) return false;
  return spec_.kind == OpKind::kAllReduce ||
         (spec_.kind == OpKind::kReduce &&
          schedule::SharesReduce(spec_.count * spec_.element_bytes));
}

DataPath CollectiveOp::ChoosePath() const {
  const uint64_t bytes =
      spec_.count * spec_.element_bytes * (spec_.part_per_rank ? comm().nranks() : 1);
  if (!spec_.uneven && GoesInline(bytes, spec_.op >= occlNumOps)) return DataPath::kInline;
  AlgorithmQuery query;
  query.choice.reduces_to_all = spec_.kind == OpKind::kAllReduce;
  query.choice.nranks = comm().nranks();
  query.choice.crowded = comm().crowded();
  query.choice.mapped = comm().direct();
  query.choice.bytes = bytes;
  query.uneven = spec_.uneven;
  return ChooseDataPath(query);
}

void CollectiveOp::Post() {
  if (window_start_ == 0) {
    path_ = ChoosePath();
    jobs_ = HasJobs();
  }
  const int rank = comm().rank();
  const bool contributes =
      spec_.flow == Flow::kAllToAll || (rank == spec_.root) == (spec_.flow == Flow::kFromRoot);
  RoundEntry& entry = comm().segment().round(rank, round_);
  RoundHead& head = entry.head;
  head = {};
  head.kind = static_cast<uint8_t>(spec_.kind);
  head.datatype = static_cast<uint8_t>(spec_.datatype);
  head.op = static_cast<uint8_t>(std::min<int>(spec_.op, occlNumOps));
  head.path = static_cast<uint8_t>(path_);
  head.root = static_cast<int16_t>(spec_.root);
  head.uneven = spec_.uneven ? 1 : 0;
  head.count = spec_.uneven ? 0 : spec_.count;
  if (spec_.op >= occlNumOps) std::memcpy(entry.inline_data, spec_.scale, sizeof(spec_.scale));
  if (path_ == DataPath::kInline) {
    window_count_ = spec_.count;
    if (contributes && spec_.count > 0) {
      std::memcpy(entry.inline_data, spec_.send,
                  spec_.count * spec_.element_bytes * (spec_.part_per_rank ? comm().nranks() : 1));
    }
  } else if (path_ == DataPath::kSlot) {
    const uint64_t parts = spec_.part_per_rank ? comm().nranks() : 1;
    window_count_ = kSlotBytes / (parts * spec_.element_bytes);
    FillWindow(contributes ? comm().segment().slot(rank, round_) : nullptr);
  } else {
    window_count_ = UINT64_MAX;
    if (!spec_.uneven) {
      if (spec_.send != nullptr) head.send_offset = comm().OffsetOf(spec_.send);
      if (spec_.recv != nullptr) head.recv_offset = comm().OffsetOf(spec_.recv);
    }
  }
  if (spec_.uneven) {
    PartEntry* parts = comm().segment().parts(rank, round_);
    const size_t n = spec_.part_per_rank ? comm().nranks() : 1;
    for (size_t i = 0; contributes && i < n; ++i) {
      const Part& part = spec_.send_parts[i];
      parts[i] = {part.count > 0 ? comm().OffsetOf(part.data) : 0, part.count};
    }
  }
  head.more = own_more_ ? 1 : 0;
  if (fault() == faulty::Fault::kTruncate) [[unlikely]]
    Truncate(&head);
  if (fault() == faulty::Fault::kDrop) [[unlikely]]
    return;
  entry.round.store(round_, std::memory_order_release);
  RingForEntry();
}

// A fault on request: tells of one element less than there is.
void CollectiveOp::Truncate(RoundHead* head) {
  if (head->count > 0) --head->count;
  if (!spec_.uneven) return;
  PartEntry* parts = comm().segment().parts(comm().rank(), round_);
  for (size_t i = 0; i < spec_.send_parts.size(); ++i) {
    if (parts[i].count > 0) --parts[i].count;
  }
}

// Puts this round's elements of each part into the slot (NULL: this rank contributes nothing), and
// notes whether another round follows: as far as this rank knows from its own parts.
void CollectiveOp::FillWindow(unsigned char* slot) {
  own_more_ = false;
  const uint64_t stride_bytes = window_count_ * spec_.element_bytes;
  const auto more = [&](const Part& part) {
    own_more_ = own_more_ || part.count > window_start_ + window_count_;
  };
  const int parts = spec_.part_per_rank ? comm().nranks() : 1;
  for (int r = 0; slot != nullptr && r < parts; ++r) {
    const Part part = spec_.SendPart(r);
    more(part);
    if (part.count <= window_start_) continue;
    const uint64_t count = std::min(part.count - window_start_, window_count_);
    std::memcpy(slot + r * stride_bytes, part.data + window_start_ * spec_.element_bytes,
                count * spec_.element_bytes);
  }
  for (int r = 0; r < comm().nranks(); ++r) {
    if (spec_.Reads(comm().rank(), r)) more(spec_.RecvPart(r));
  }
}

// Kernels take a double for each rank, or a pair for complex datatypes.
void CollectiveOp::KeepFactor(int rank, const void* factor) {
  const size_t doubles = IsComplex(spec_.datatype) ? 2 : 1;
  std::memcpy(&comm().scratch.scales[doubles * rank], factor, doubles * sizeof(double));
}

StepResult CollectiveOp::Agree() {
  for (; peer_ < comm().nranks(); ++peer_) {
    if (peer_ == comm().rank() || !Exchanges(peer_)) continue;
    const RoundEntry& entry = comm().segment().round(peer_, round_);
    if (entry.round.load(std::memory_order_acquire) != round_) return StepResult::kWaiting;
    const RoundHead head = CopyOut(entry.head);
    const Status same = Compare(peer_, head);
    if (!same.ok()) return FailComm(same);
    if (head.more == 1) agreed_more_ = true;
    comm().scratch.heads[peer_] = head;
    if (spec_.op >= occlNumOps) KeepFactor(peer_, entry.inline_data);
  }
  if (spec_.op >= occlNumOps) KeepFactor(comm().rank(), spec_.scale);
  // Who has posted a round has done the one before: no need to fetch its `done` for the next place.
  static_assert(kRoundPlaces >= 2);
  if (ExchangesWithAll()) comm().slowest_done = round_ - 1;
  peer_ = 0;
  position_ = 0;
  doer_ = jobs_ ? -1 : comm().rank();
  phase_ = Phase::kMove;
  if (comm().crowded() && ExchangesWithAll() && !jobs_) Ring();
  return StepResult::kMoved;
}

// This rank has read all it wants of the round.
StepResult CollectiveOp::EndRound() {
  comm().block(comm().rank()).done.store(round_, std::memory_order_release);
  comm().next_round = round_ + 1;
  if (!jobs_) Ring();
  peer_ = 0;
  phase_ = Phase::kReaders;
  return StepResult::kMoved;
}

// Done when nobody reads this rank's buffers any more; slots and entries are not waited for.
StepResult CollectiveOp::AwaitReaders() {
  if (jobs_) return AllJobsDone() ? FinishOk() : StepResult::kWaiting;
  if (path_ == DataPath::kDirect) {
    for (; peer_ < comm().nranks(); ++peer_) {
      if (peer_ == comm().rank() || !ReadBy(peer_)) continue;
      if (comm().block(peer_).done.load(std::memory_order_acquire) < round_) {
        return StepResult::kWaiting;
      }
    }
    return FinishOk();
  }
  if (!own_more_ && !agreed_more_) return FinishOk();
  window_start_ += window_count_;
  ++round_;
  phase_ = Phase::kPlace;
  return StepResult::kMoved;
}

bool CollectiveOp::WaitsFor(int rank) const {
  const auto& block = comm().block(rank);
  switch (phase_) {
    case Phase::kTurn:
    case Phase::kMove:
      return false;
    case Phase::kPlace:
      return block.done.load(std::memory_order_acquire) < round_ - kRoundPlaces;
    case Phase::kAgree:
      return Exchanges(rank) &&
             comm().segment().round(rank, round_).round.load(std::memory_order_acquire) != round_;
    case Phase::kReaders:
      if (jobs_) return WaitsForJobOf(rank);
      return path_ == DataPath::kDirect && ReadBy(rank) &&
             block.done.load(std::memory_order_acquire) < round_;
  }
  return false;
}

// The collective whose turn it is has the round after the last one that this rank has done.
bool CollectiveOp::HoldsUp(int rank) const {
  const uint64_t round = comm().block(comm().rank()).done.load(std::memory_order_acquire) + 1;
  return phase_ == Phase::kTurn &&
         comm().segment().round(rank, round).round.load(std::memory_order_acquire) != round;
}

}  // namespace occl
