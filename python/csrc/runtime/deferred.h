// Operators on a stream that is not empty: queued, with everything they use kept alive.
#ifndef PYTHON_CSRC_RUNTIME_DEFERRED_H_
#define PYTHON_CSRC_RUNTIME_DEFERRED_H_

#include <atomic>
#include <memory>
#include <utility>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Work that was queued, with what it keeps alive. It is never destroyed on a worker: what it holds
// may be owned by Python, whose lock a worker must not wait for. When it has run it goes to the
// reap list, which ordinary threads empty (reap_finished).
class DeferredTask {
 public:
  // `owner`: whose c10::DistError its failure is (async_failures.h).
  explicit DeferredTask(FailureOwnerPtr owner = nullptr) : owner_(std::move(owner)) {}
  virtual ~DeferredTask() = default;
  virtual void run() = 0;

 private:
  friend void enqueue(const char* name, const OpenregStream& stream,
                      std::unique_ptr<DeferredTask> task);
  friend struct DeferredQueue;
  DeferredTask* next_ = nullptr;
  const FailureOwnerPtr owner_;
  const char* name_ = nullptr;
  orStream_t stream_ = nullptr;
  int device_ = 0;
};

// Queues `task` on `stream` (static `name`). An exception of run() is left on the stream and raised
// by its next synchronise or query. run() is called without grad mode and below autograd, on a
// thread that must not take the interpreter lock nor call anything that blocks on the same stream.
void enqueue(const char* name, const OpenregStream& stream, std::unique_ptr<DeferredTask> task);

namespace detail {
extern std::atomic<DeferredTask*> reap_list;
void reap_slow() noexcept;
}  // namespace detail

// Drops what finished tasks kept alive. One relaxed load if there is nothing. Called by the
// allocator and by every synchronise; call it only where destroying a Python
// object is allowed: on no worker, under no lock.
inline void reap_finished() noexcept {
  if (detail::reap_list.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
    detail::reap_slow();
  }
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_DEFERRED_H_
