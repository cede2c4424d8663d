// Operators on a stream that is not empty: queued, with everything they use kept alive.
#ifndef PYTHON_CSRC_RUNTIME_DEFERRED_H_
#define PYTHON_CSRC_RUNTIME_DEFERRED_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Work that was queued, with what it keeps alive. It is never destroyed on a worker: what it holds
// may be owned by Python, whose lock a worker must not wait for. When it has run it goes to the
// reap list, which ordinary threads empty (reap_finished).
class DeferredTask {
 public:
  virtual ~DeferredTask() = default;
  virtual void run() = 0;

 private:
  friend void enqueue(const char* name, const OpenregStream& stream,
                      std::unique_ptr<DeferredTask> task);
  friend struct DeferredQueue;
  DeferredTask* next_ = nullptr;
  const char* name_ = nullptr;
  orStream_t stream_ = nullptr;
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
// allocator, by run_or_queue and by every synchronise; call it only where destroying a Python
// object is allowed: on no worker, under no lock.
inline void reap_finished() noexcept {
  if (detail::reap_list.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
    detail::reap_slow();
  }
}

// Runs `fn()` now, holding the stream, if the stream is empty; queues it otherwise. In the second
// case fn is moved into the task and `keep` (the tensors whose memory it touches) is kept alive
// until it has run, so fn must own what it captures: raw pointers into `keep` are fine, references
// to locals are not. Exceptions of a call that runs now propagate.
template <typename Fn>
void run_or_queue(const char* name, const OpenregStream& stream, c10::ArrayRef<at::Tensor> keep,
                  Fn&& fn) {
  reap_finished();
  if (TryStreamHold hold(stream, name); hold) [[likely]] {
    fn();
    return;
  }
  class Task final : public DeferredTask {
   public:
    Task(c10::ArrayRef<at::Tensor> keep, Fn&& fn)
        : keep_(keep.begin(), keep.end()), fn_(std::forward<Fn>(fn)) {}
    void run() override { fn_(); }

   private:
    std::vector<at::Tensor> keep_;
    std::decay_t<Fn> fn_;
  };
  enqueue(name, stream, std::make_unique<Task>(keep, std::forward<Fn>(fn)));
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_DEFERRED_H_
