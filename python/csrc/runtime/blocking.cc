#include "python/csrc/runtime/blocking.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace torch_openreg {
namespace {

constexpr std::int64_t kSliceMs = 100;

bool has_gil() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// While the interpreter ends, a thread that asks for its lock is ended inside that call, and the
// unwinding of a C++ destructor (pybind11's, torch's) on the way is std::terminate. So a thread
// that waited for the device does not come back: the process is about to exit. Python 3.14 does
// the same. The main thread is the one that ends the interpreter, and goes on.
void stay_if_finalizing() {
  if (Py_IsInitialized() == 0 || (is_finalizing() && gettid() != getpid())) {
    while (gettid() != getpid()) {
      pause();
    }
  }
}

// Waits once, without the lock if this thread has it.
orError_t wait_slice(bool gil, std::int64_t slice_ms,
                     const std::function<orError_t(std::int64_t)>& wait) {
  PyThreadState* state = gil ? PyEval_SaveThread() : nullptr;
  const orError_t error = wait(slice_ms);
  stay_if_finalizing();
  if (gil) {
    PyEval_RestoreThread(state);
  }
  return error;
}

}  // namespace

orError_t wait_without_gil(std::int64_t timeout_ms,
                           const std::function<orError_t(std::int64_t slice_ms)>& wait) {
  using Clock = std::chrono::steady_clock;
  const bool gil = has_gil();
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0));
  while (true) {
    std::int64_t slice_ms = kSliceMs;
    if (timeout_ms >= 0) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      slice_ms = std::clamp<std::int64_t>(left, 0, kSliceMs);
    }
    const orError_t error = wait_slice(gil, slice_ms, wait);
    if (error != orErrorTimeout) {
      return error;
    }
    if (gil && PyErr_CheckSignals() != 0) {
      throw pybind11::error_already_set();
    }
    if (timeout_ms >= 0 && Clock::now() >= deadline) {
      return error;
    }
  }
}

}  // namespace torch_openreg
