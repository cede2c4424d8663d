// A stream: work in order, run by whoever is allowed to: the caller on an empty stream, else the
// stream's worker thread.
//
// Everything that runs has a sequence number: issued_ is the last one given out, completed_ the
// last one that ended (stream_clock.h). Number n may run when completed_ == n - 1, so there is no
// state "running" to lock: taking an empty stream is one compare-exchange of issued_ from
// completed_ to the next number, and giving it back is one store of completed_.
//
// Memory order. Two store-load races need seq_cst on both sides: a queuer raises issued_ and then
// reads completed_ (is my work next?), while whoever ends work stores completed_ and then reads
// issued_ (has somebody queued?): one of the two sees the other and wakes the worker. Likewise a
// sleeper lowers wake_at_ and then reads completed_, while whoever ends work stores completed_ and
// then reads wake_at_. Elsewhere acquire/release on completed_ orders the effects of work.
#ifndef OPENREG_RUNTIME_STREAM_H_
#define OPENREG_RUNTIME_STREAM_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "openreg/api/openreg.h"
#include "openreg/runtime/activity.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/status.h"
#include "openreg/runtime/stream_clock.h"

namespace openreg {

class Pool;
class Stream;
class WorkerGroup;

// One piece of work. `run` is called once, on one thread, and returns what is left on the stream.
struct Work {
  using Run = orError_t (*)(Work& work);

  Run run = nullptr;
  const char* name = "";  // static storage
  orActivityKind kind = orActivityKernel;
  bool silent = false;      // no activity: waits and marks
  bool any_thread = false;  // short and without side effects: who waits for it may run it
  size_t bytes = 0;
  int64_t began_ns = 0;  // of the rest of a hold: when the hold began, 0 if it is not reported
  orKernelFn kernel = nullptr;
  orHostFn host = nullptr;
  void* arg = nullptr;
  // For the runtime's own work (copies, waits, marks): plain data, and memory owned by the work.
  uint64_t data[5] = {};
  std::unique_ptr<unsigned char[]> owned;

  static Work Kernel(const char* name, orKernelFn fn, void* arg);
  static Work HostFunction(orHostFn fn, void* arg);
};

// Whether an error stays, or is reported first, where another one comes (openreg.h).
inline bool Outranks(orError_t present, orError_t other) {
  return present != orErrorNotedFailure || other == orErrorNotedFailure;
}

// What work left behind. Streams that wait for each other share it: it is reported once.
struct AsyncError {
  AsyncError(orError_t error, std::string text) : code(error), message(std::move(text)) {}

  const orError_t code;
  const std::string message;
  std::atomic<bool> reported{false};
};

class Stream : public StreamClock {
 public:
  Stream() = default;

  // Before the handle is given out. The object may have been another stream before.
  void Start(int device, int priority, uint64_t id, WorkerGroup* group, ActivityLog* activity,
             orStream_t handle);
  int device() const { return device_; }
  int priority() const { return priority_; }
  uint64_t id() const { return id_.load(std::memory_order_relaxed); }
  orStream_t handle() const { return handle_; }
  WorkerGroup* group() const { return group_; }
  std::string Describe() const;

  // What the thread's outermost hold or work here is reported as (orStreamSetActivity).
  Status SetActivity(orActivityKind kind, const char* name, size_t bytes);

  // True if the calling thread holds the stream or runs its work.
  bool HeldByMe() const;

  // Runs the work here and now if the stream is empty or held by this thread, else queues it.
  Status RunOrQueue(Work work);
  // Runs the work on this thread when its turn has come.
  Status RunInTurn(Work work, Deadline deadline);
  // *sequence: the number the work got.
  Status Queue(Work work, uint64_t* sequence = nullptr);

  // Holding (openreg.h). A hold without a name is not reported to profilers.
  bool TryAcquire(const char* name);
  Status Acquire(const char* name, Deadline deadline);
  Status ReleaseHold();
  Status ReleaseTo(Work work);

  // Waits until the position has passed. Errors: orErrorTimeout, orErrorNotPermitted (the caller
  // would wait for itself).
  Status WaitFor(uint64_t sequence, Deadline deadline, const char* what);
  // Same, for a worker: gives up when the process exits. False if the position has not passed.
  bool WaitQuietly(uint64_t sequence, Deadline deadline) const;
  // The error that work left here, or on a stream that this one has waited for: once for all.
  Status TakeError();
  void SetError(orError_t error, std::string message);
  // `waiter` waits for work here: what failed and has not been reported is left there too.
  void CopyErrorTo(Stream* waiter);
  void LeaveError(std::shared_ptr<AsyncError> error);

  // No handle leads here any more: the worker ends after the queued work. The caller must not touch
  // the stream afterwards.
  void Retire();

  // Cached by the allocator's caller: this stream's pool.
  std::atomic<Pool*> pool{nullptr};

 private:
  friend class WorkerGroup;

  struct Entry {
    Entry* next = nullptr;
    uint64_t sequence = 0;
    bool hold = false;       // a thread waits in Acquire for its turn
    bool cancelled = false;  // of a hold: nobody waits any more
    bool blocked = false;    // of the rest of a hold (ReleaseTo): the hold has not ended yet
    Work work;
  };

  Status Push(Work work, bool hold, uint64_t* sequence, Entry** entry);
  Entry* NewEntry();
  void FreeEntry(Entry* entry);
  void UnblockRest(uint64_t sequence);
  enum class Runner { kCaller, kWorker };
  void RunAs(Work& work, uint64_t sequence, Runner runner);
  void Execute(Work& work);
  void Complete(uint64_t sequence);
  void StoreCompleted(uint64_t sequence);
  void EndWork(uint64_t sequence, Runner runner);
  void SkipCancelledLocked();
  void Kick();
  void SignalWorker();
  Status EnsureWorkerLocked();
  void BeginHold(uint64_t sequence, const char* name);
  void BeginHoldActivity(const char* name);
  Status HoldTimedOut(const char* name);
  void ReportActivity(const Work& work, int64_t start_ns);
  bool HelpTowards(uint64_t sequence);

  // The worker's side (worker.cc).
  static void* WorkerMain(void* self);
  void WorkerLoop();
  bool TakeRunnable(Work* work, uint64_t* sequence, uint64_t helper_goal = 0);
  void WaitForWork(uint32_t seen);
  bool WorkerMayEnd();

  // Constant while the handle is live.
  int device_ = 0;
  int priority_ = 0;
  std::atomic<uint64_t> id_{0};  // events compare it with that of the stream they recorded
  orStream_t handle_ = nullptr;
  WorkerGroup* group_ = nullptr;
  ActivityLog* activity_ = nullptr;

  // Who runs now: the thread's token, written by that thread only, so comparing it with one's own
  // token needs no order. name for messages.
  std::atomic<uintptr_t> holder_{0};
  std::atomic<const char*> running_{nullptr};
  // Of the hold; touched by the holder only, handed over by issued_ and completed_.
  uint64_t hold_sequence_ = 0;
  int hold_depth_ = 0;
  bool hold_is_work_ = false;   // the holder is inside of RunAs, not of Acquire
  bool hold_has_rest_ = false;  // ReleaseTo queued entries with the hold's own number
  int64_t hold_start_ns_ = 0;   // 0: not reported
  Work hold_activity_;          // what a hold is reported as
  Work* executing_ = nullptr;   // the work that is reported, while it runs

  // Threads that sleep until completed_ gets somewhere: the nearest of their goals, and a count of
  // wakes to sleep on. A wake takes the goal away; those whose goal was farther set it again.
  mutable std::atomic<uint64_t> wake_at_{UINT64_MAX};
  mutable std::atomic<uint32_t> wakes_{0};

  FutexLock queue_lock_;  // guards the next block
  Entry* front_ = nullptr;
  Entry* back_ = nullptr;
  Entry* free_entries_ = nullptr;
  int free_entry_count_ = 0;
  bool worker_started_ = false;
  bool ended_ = false;  // retired and empty: nothing can be queued any more
  pthread_t worker_{};

  alignas(64) std::atomic<uint32_t> work_signal_{0};  // goes up when the worker should look
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<bool> retired_{false};

  std::atomic<bool> has_error_{false};
  std::mutex error_mutex_;  // guards the next one
  std::shared_ptr<AsyncError> error_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_STREAM_H_
