// How threads wait for streams, and what they learn.
#include <climits>
#include <utility>

#include "openreg/runtime/stream.h"
#include "openreg/runtime/worker.h"

namespace openreg {
namespace {

constexpr int64_t kStopCheckMs = 50;

}  // namespace

bool Stream::WaitQuietly(uint64_t sequence, Deadline deadline) const {
  if (Passed(sequence)) return true;
  int64_t spin_ns = group_->SpinNs();
  if (spin_ns > 0) {
    int64_t until_ns = NowNs() + spin_ns;
    do {
      for (int i = 0; i < 8; ++i) CpuRelax();
      if (Passed(sequence)) return true;
    } while (NowNs() < until_ns);
  }
  while (true) {
    // In this order: a wake after the first line ends the sleep, one before it is seen in the
    // third.
    uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    uint64_t goal = wake_at_.load(std::memory_order_relaxed);
    while (goal > sequence &&
           !wake_at_.compare_exchange_weak(goal, sequence, std::memory_order_seq_cst)) {
    }
    if (completed_.load(std::memory_order_seq_cst) >= sequence) return true;
    if (deadline.Passed() || group_->stopping()) return false;
    FutexWait(&wakes_, wakes, deadline.Slice(kStopCheckMs));
  }
}

// Runs what is next on this thread if it may: a copy that is waited for at once is done before its
// worker has woken up.
bool Stream::HelpTowards(uint64_t sequence) {
  Work work;
  uint64_t mine;
  if (Passed(sequence) || group_->stopping() || !TakeRunnable(&work, &mine, sequence)) return false;
  RunAs(work, mine, Runner::kCaller);
  return true;
}

Status Stream::WaitFor(uint64_t sequence, Deadline deadline, const char* what) {
  if (Passed(sequence)) return Status();
  if (HeldByMe() && sequence >= hold_sequence_) {
    return Status(orErrorNotPermitted,
                  Format("%s: the calling thread runs or holds %s and would wait for itself", what,
                         Describe().c_str()));
  }
  while (HelpTowards(sequence)) {
  }
  if (WaitQuietly(sequence, deadline)) return Status();
  if (group_->stopping()) return WorkerGroup::Stopped();
  return Status(orErrorTimeout, Format("%s: deadline passed, %s", what, Describe().c_str()));
}

Status Stream::TakeError() {
  if (!has_error_.load(std::memory_order_acquire)) return Status();
  std::shared_ptr<AsyncError> error;
  {
    std::lock_guard<std::mutex> lock(error_mutex_);
    error = std::move(error_);
    has_error_.store(false, std::memory_order_relaxed);
  }
  if (error == nullptr || error->reported.exchange(true)) return Status();
  return Status(error->code, error->message);
}

void Stream::SetError(orError_t error, std::string message) {
  LeaveError(std::make_shared<AsyncError>(error, std::move(message)));
}

void Stream::LeaveError(std::shared_ptr<AsyncError> error) {
  std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_ != nullptr && !error_->reported.load(std::memory_order_relaxed) &&
      Outranks(error_->code, error->code)) {
    return;
  }
  error_ = std::move(error);
  has_error_.store(true, std::memory_order_release);
}

void Stream::CopyErrorTo(Stream* waiter) {
  if (!has_error_.load(std::memory_order_acquire)) [[likely]]
    return;
  std::shared_ptr<AsyncError> error;
  {
    std::lock_guard<std::mutex> lock(error_mutex_);
    error = error_;
  }
  if (error != nullptr && !error->reported.load(std::memory_order_relaxed)) {
    waiter->LeaveError(std::move(error));
  }
}

void Stream::Retire() {
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    retired_.store(true, std::memory_order_seq_cst);
    // A worker sees to the end of what is queued or running.
    bool has_worker = worker_started_ || (!Idle() && EnsureWorkerLocked().ok());
    if (has_worker) SignalWorker();
    ended_ = !has_worker;
    if (has_worker || !Idle()) return;
  }
  group_->Recycle(this);
}

}  // namespace openreg
