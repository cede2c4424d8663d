#include "python/csrc/runtime/deferred.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <Python.h>

namespace torch_openreg {
namespace detail {

std::atomic<DeferredTask*> reap_list{nullptr};

}  // namespace detail

namespace {

thread_local bool on_worker = false;

}  // namespace

// What the runtime calls. Friend of DeferredTask.
struct DeferredQueue {
  static orError_t trampoline(void* argument) {
    auto* task = static_cast<DeferredTask*>(argument);
    const bool nested = std::exchange(on_worker, true);
    orError_t result = orSuccess;
    try {
      c10::NoGradGuard no_grad;
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      task->run();
    } catch (const std::exception&) {
      result = note_async_failure(
          {task->stream_, task->device_, task->name_, std::current_exception()}, task->owner_);
    }
    on_worker = nested;
    // Push: the release pairs with the acquire of reap_slow's exchange, so that whoever destroys
    // the task sees all that run() wrote.
    DeferredTask* head = detail::reap_list.load(std::memory_order_relaxed);
    do {
      task->next_ = head;
    } while (!detail::reap_list.compare_exchange_weak(head, task, std::memory_order_release,
                                                      std::memory_order_relaxed));
    return result;
  }

  static void destroy_all(DeferredTask* task) {
    while (task != nullptr) {
      DeferredTask* next = task->next_;
      delete task;
      task = next;
    }
  }
};

void enqueue(const char* name, const OpenregStream& stream, std::unique_ptr<DeferredTask> task) {
  task->name_ = name;
  task->stream_ = stream.handle;
  task->device_ = stream.device;
  DeferredTask* argument = task.release();
  const orError_t error =
      orLaunchKernelQueued(name, DeferredQueue::trampoline, argument, stream.handle);
  if (error != orSuccess) {
    delete argument;
    throw_error(error, "orLaunchKernelQueued");
  }
}

namespace detail {

void reap_slow() noexcept {
  // A worker must not wait for the interpreter lock; and after the interpreter has ended nothing
  // may be returned to it: the process is about to give everything back anyway.
  if (on_worker || Py_IsInitialized() == 0) {
    return;
  }
  DeferredQueue::destroy_all(reap_list.exchange(nullptr, std::memory_order_acquire));
}

}  // namespace detail
}  // namespace torch_openreg
