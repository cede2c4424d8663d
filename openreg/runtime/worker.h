// The worker threads of all streams: how long they spin, and how they end.
#ifndef OPENREG_RUNTIME_WORKER_H_
#define OPENREG_RUNTIME_WORKER_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "openreg/runtime/futex.h"
#include "openreg/runtime/status.h"

namespace openreg {

class Stream;

class WorkerGroup {
 public:
  // `recycle` is called, on the worker's or on the retiring thread, when a retired stream is empty
  // and its worker, if any, has let go of it.
  explicit WorkerGroup(std::function<void(Stream*)> recycle);

  // Starts the stream's worker thread with all signals blocked.
  Status StartWorker(Stream* stream, pthread_t* thread);
  // Ends all workers: what runs goes on until `deadline`, what is queued is dropped. Afterwards
  // nothing can be queued. Threads that have not come back are left alone.
  void StopAll(Deadline deadline);
  // What queueing answers from then on.
  static Status Stopped() {
    return Status(orErrorInitializationError, "the process is exiting: streams run no more work");
  }
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  // Joins workers whose streams were destroyed.
  void Reap();
  void Recycle(Stream* stream) { recycle_(stream); }

  // Spin time for a thread that waits for work; 0 if more workers are awake than there are cores.
  int64_t SpinNs() const {
    return awake_.load(std::memory_order_relaxed) > cpu_count_ ? 0 : kSpinNs;
  }
  void Awake(int change) { awake_.fetch_add(change, std::memory_order_relaxed); }

  // The calling worker is about to end.
  void Ended(Stream* stream);

 private:
  static constexpr int64_t kSpinNs = 4000;

  const std::function<void(Stream*)> recycle_;
  const int cpu_count_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> awake_{1};  // the host's own thread counts
  std::mutex mutex_;           // guards the next two
  std::vector<Stream*> running_;
  std::vector<pthread_t> ended_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_WORKER_H_
