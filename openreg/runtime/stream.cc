#include "openreg/runtime/stream.h"

#include <cxxabi.h>

#include <climits>
#include <utility>

#include "openreg/runtime/worker.h"

namespace openreg {
namespace {

constexpr int kKeptEntries = 256;

// A number that no other thread has now.
uintptr_t MyToken() {
  thread_local char token;
  return reinterpret_cast<uintptr_t>(&token);
}

}  // namespace

Work Work::Kernel(const char* name, orKernelFn fn, void* arg) {
  Work work;
  work.name = name == nullptr ? "kernel" : name;
  work.kernel = fn;
  work.arg = arg;
  work.run = [](Work& self) { return self.kernel(self.arg); };
  return work;
}

Work Work::HostFunction(orHostFn fn, void* arg) {
  Work work;
  work.name = "host function";
  work.kind = orActivityHostFunc;
  work.host = fn;
  work.arg = arg;
  work.run = [](Work& self) {
    self.host(self.arg);
    return orSuccess;
  };
  return work;
}

void Stream::Start(int device, int priority, uint64_t id, WorkerGroup* group, ActivityLog* activity,
                   orStream_t handle) {
  device_ = device;
  priority_ = priority;
  id_.store(id, std::memory_order_relaxed);
  group_ = group;
  activity_ = activity;
  handle_ = handle;
  pool.store(nullptr, std::memory_order_relaxed);
  retired_.store(false, std::memory_order_relaxed);
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    ended_ = false;
  }
  (void)TakeError();  // of the stream that was here before
}

std::string Stream::Describe() const {
  const char* running = running_.load(std::memory_order_relaxed);
  return Format("stream %llu of device %d (running: %s, %llu not ended)",
                static_cast<unsigned long long>(id()), device_,
                running == nullptr ? "nothing" : running,
                static_cast<unsigned long long>(issued() - completed()));
}

bool Stream::HeldByMe() const { return holder_.load(std::memory_order_relaxed) == MyToken(); }

// ---------------------------------------------------------------------------- running

void Stream::BeginHold(uint64_t sequence, const char* name) {
  holder_.store(MyToken(), std::memory_order_relaxed);
  running_.store(name, std::memory_order_relaxed);
  hold_sequence_ = sequence;
  hold_depth_ = 1;
  executing_ = nullptr;
}

Status Stream::SetActivity(orActivityKind kind, const char* name, size_t bytes) {
  if (!HeldByMe()) {
    return Status(orErrorNotPermitted,
                  Format("activity of %s: this thread does not hold it", Describe().c_str()));
  }
  Work* reported = executing_ != nullptr ? executing_ : &hold_activity_;
  if (hold_depth_ == 1 && (executing_ != nullptr || hold_start_ns_ != 0)) {
    reported->kind = kind;
    if (name != nullptr) reported->name = name;
    reported->bytes = bytes;
  }
  return Status();
}

void Stream::Execute(Work& work) {
  int64_t start_ns = 0;
  if (!work.silent && activity_->enabled()) start_ns = work.began_ns != 0 ? work.began_ns : NowNs();
  Work* outer = executing_;
  if (start_ns != 0) executing_ = &work;
  orError_t error;
  try {
    error = work.run(work);
  } catch (abi::__forced_unwind&) {
    throw;  // the thread is being ended, e.g. by an interpreter that finalises
  } catch (...) {
    error = orErrorLaunchFailure;
  }
  if (error != orSuccess) [[unlikely]] {
    SetError(error, Format("'%s' on stream %llu of device %d reported %s", work.name,
                           static_cast<unsigned long long>(id()), device_, orGetErrorName(error)));
  }
  if (start_ns != 0) {
    executing_ = outer;
    ReportActivity(work, start_ns);
  }
}

void Stream::ReportActivity(const Work& work, int64_t start_ns) {
  orActivity activity{work.kind, work.name, device_, id(), start_ns, NowNs(), work.bytes};
  activity_->Report(activity);
}

// The calling thread has the right to run number `sequence`: runs the work and ends the number,
// whichever way the work is left.
void Stream::RunAs(Work& work, uint64_t sequence, Runner runner) {
  struct End {
    Stream* stream;
    uint64_t sequence;
    Runner runner;
    ~End() { stream->EndWork(sequence, runner); }
  } end{this, sequence, runner};
  BeginHold(sequence, work.name);
  hold_is_work_ = true;
  Execute(work);
}

void Stream::EndWork(uint64_t sequence, Runner runner) {
  hold_is_work_ = false;
  holder_.store(0, std::memory_order_relaxed);
  running_.store(nullptr, std::memory_order_relaxed);
  if (hold_has_rest_) [[unlikely]] {
    UnblockRest(sequence);
  } else if (runner == Runner::kWorker) {
    StoreCompleted(sequence);  // the worker looks for what is next by itself
  } else {
    Complete(sequence);
  }
}

void Stream::StoreCompleted(uint64_t sequence) {
  completed_.store(sequence, std::memory_order_seq_cst);
  if (sequence < wake_at_.load(std::memory_order_seq_cst)) return;
  wake_at_.exchange(UINT64_MAX, std::memory_order_seq_cst);
  wakes_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(&wakes_, INT_MAX);
}

void Stream::Complete(uint64_t sequence) {
  StoreCompleted(sequence);
  if (issued_.load(std::memory_order_seq_cst) != sequence ||
      retired_.load(std::memory_order_seq_cst)) {
    Kick();
  }
}

void Stream::Kick() {
  std::lock_guard<FutexLock> guard(queue_lock_);
  SkipCancelledLocked();
  if (worker_started_) SignalWorker();
}

void Stream::SkipCancelledLocked() {
  while (front_ != nullptr && front_->cancelled &&
         front_->sequence == completed_.load(std::memory_order_relaxed) + 1) {
    Entry* entry = front_;
    front_ = entry->next;
    if (front_ == nullptr) back_ = nullptr;
    StoreCompleted(entry->sequence);
    FreeEntry(entry);
  }
}

void Stream::SignalWorker() {
  work_signal_.fetch_add(1, std::memory_order_seq_cst);
  if (worker_sleeps_.load(std::memory_order_seq_cst)) FutexWake(&work_signal_, 1);
}

Status Stream::RunOrQueue(Work work) {
  if (HeldByMe()) {
    Execute(work);
    return Status();
  }
  uint64_t done = completed_.load(std::memory_order_acquire);
  uint64_t expected = done;
  if (issued_.compare_exchange_strong(expected, done + 1, std::memory_order_seq_cst)) {
    RunAs(work, done + 1, Runner::kCaller);
    return Status();
  }
  return Queue(std::move(work));
}

Status Stream::RunInTurn(Work work, Deadline deadline) {
  OPENREG_RETURN_IF_ERROR(Acquire(nullptr, deadline));
  struct Release {
    Stream* stream;
    ~Release() { (void)stream->ReleaseHold(); }
  } release{this};
  Execute(work);
  return Status();
}

Status Stream::Queue(Work work, uint64_t* sequence) {
  uint64_t mine;
  Entry* entry;
  OPENREG_RETURN_IF_ERROR(Push(std::move(work), /*hold=*/false, &mine, &entry));
  if (sequence != nullptr) *sequence = mine;
  return Status();
}

// *entry stays valid for a hold only: the worker may take anything else at once.
Status Stream::Push(Work work, bool hold, uint64_t* sequence, Entry** entry) {
  bool next;
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    if (ended_) return Status(orErrorInvalidResourceHandle, "the stream was destroyed");
    if (!hold) OPENREG_RETURN_IF_ERROR(EnsureWorkerLocked());
    Entry* fresh = NewEntry();
    fresh->hold = hold;
    fresh->work = std::move(work);
    fresh->sequence = issued_.fetch_add(1, std::memory_order_seq_cst) + 1;
    (back_ == nullptr ? front_ : back_->next) = fresh;
    back_ = fresh;
    next = completed_.load(std::memory_order_seq_cst) + 1 == fresh->sequence;
    *sequence = fresh->sequence;
    *entry = fresh;
  }
  if (next && !hold) SignalWorker();
  return Status();
}

Stream::Entry* Stream::NewEntry() {
  if (free_entries_ == nullptr) return new Entry;
  Entry* entry = free_entries_;
  free_entries_ = entry->next;
  --free_entry_count_;
  entry->next = nullptr;
  entry->hold = entry->cancelled = entry->blocked = false;
  return entry;
}

// With queue_lock_ held.
void Stream::FreeEntry(Entry* entry) {
  if (free_entry_count_ >= kKeptEntries) {
    delete entry;
    return;
  }
  entry->work.owned.reset();
  entry->next = free_entries_;
  free_entries_ = entry;
  ++free_entry_count_;
}

Status Stream::EnsureWorkerLocked() {
  if (group_->stopping()) return WorkerGroup::Stopped();
  if (worker_started_) return Status();
  OPENREG_RETURN_IF_ERROR(group_->StartWorker(this, &worker_));
  worker_started_ = true;
  return Status();
}

// ---------------------------------------------------------------------------- holding

bool Stream::TryAcquire(const char* name) {
  if (HeldByMe()) {
    ++hold_depth_;
    return true;
  }
  uint64_t done = completed_.load(std::memory_order_acquire);
  uint64_t expected = done;
  if (!issued_.compare_exchange_strong(expected, done + 1, std::memory_order_seq_cst)) return false;
  BeginHold(done + 1, name);
  BeginHoldActivity(name);
  return true;
}

void Stream::BeginHoldActivity(const char* name) {
  hold_start_ns_ = 0;
  if (name == nullptr || !activity_->enabled()) return;
  hold_activity_ = Work();
  hold_activity_.name = name;
  hold_start_ns_ = NowNs();
}

Status Stream::Acquire(const char* name, Deadline deadline) {
  if (TryAcquire(name)) return Status();
  // A place in the queue, so that nobody overtakes.
  uint64_t sequence;
  Entry* entry;
  OPENREG_RETURN_IF_ERROR(Push(Work(), /*hold=*/true, &sequence, &entry));
  bool turn = WaitQuietly(sequence - 1, deadline);
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    SkipCancelledLocked();
    turn = turn || completed_.load(std::memory_order_acquire) + 1 == sequence;
    if (turn) {
      front_ = entry->next;
      if (front_ == nullptr) back_ = nullptr;
      FreeEntry(entry);
    } else {
      entry->cancelled = true;
    }
  }
  if (!turn) return group_->stopping() ? WorkerGroup::Stopped() : HoldTimedOut(name);
  BeginHold(sequence, name);
  BeginHoldActivity(name);
  return Status();
}

Status Stream::HoldTimedOut(const char* name) {
  return Status(orErrorTimeout, Format("'%s' waited in vain for its turn on %s",
                                       name == nullptr ? "hold" : name, Describe().c_str()));
}

Status Stream::ReleaseHold() {
  if (!HeldByMe() || (hold_depth_ == 1 && hold_is_work_)) {
    return Status(orErrorNotPermitted,
                  Format("release of %s: this thread does not hold it", Describe().c_str()));
  }
  if (--hold_depth_ > 0) return Status();
  if (hold_start_ns_ != 0) [[unlikely]] {
    ReportActivity(hold_activity_, hold_start_ns_);
    hold_start_ns_ = 0;
  }
  EndWork(hold_sequence_, Runner::kCaller);
  return Status();
}

Status Stream::ReleaseTo(Work work) {
  if (!HeldByMe() || (hold_depth_ == 1 && hold_is_work_)) {
    return Status(orErrorNotPermitted,
                  Format("release of %s: this thread does not hold it", Describe().c_str()));
  }
  Status started;
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    started = EnsureWorkerLocked();
  }
  if (!started.ok()) {
    (void)ReleaseHold();
    return started;
  }
  {
    std::lock_guard<FutexLock> guard(queue_lock_);
    Entry* entry = NewEntry();
    entry->sequence = hold_sequence_;
    entry->blocked = true;
    entry->work = std::move(work);
    // One activity from the beginning of the hold on, not two with a gap while the worker wakes.
    if (hold_depth_ == 1 && !hold_has_rest_) {
      entry->work.began_ns = std::exchange(hold_start_ns_, 0);
    }
    // Behind earlier rests of this hold, before everything else.
    Entry** place = &front_;
    while (*place != nullptr && (*place)->sequence == hold_sequence_) place = &(*place)->next;
    entry->next = *place;
    *place = entry;
    if (entry->next == nullptr) back_ = entry;
  }
  hold_has_rest_ = true;
  return ReleaseHold();
}

// The hold has ended, its number goes on with what ReleaseTo queued.
void Stream::UnblockRest(uint64_t sequence) {
  hold_has_rest_ = false;
  std::lock_guard<FutexLock> guard(queue_lock_);
  for (Entry* entry = front_; entry != nullptr && entry->sequence == sequence;
       entry = entry->next) {
    entry->blocked = false;
  }
  SignalWorker();
}

}  // namespace openreg
