#include "python/csrc/runtime/blocking.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "python/csrc/runtime/interpreter.h"

namespace torch_openreg {
namespace {

constexpr std::int64_t kSliceMs = 100;

bool has_gil() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

// While the interpreter ends, a thread that asks for its lock is ended inside that call, and the
// unwinding of a C++ destructor (pybind11's, torch's) on the way is std::terminate. So a thread
// that waits for the device then does not come back: the process is about to exit. Python 3.14 does
// the same. The main thread is the one that ends the interpreter, and goes on.
//
// The interpreter does not say beforehand that it is about to end, but its exit handlers run
// before: end_waits() tells those who wait to stay, and lets those through that are on their way to
// the lock. seq_cst: a thread raises `returning` and then reads `exiting`, end_waits() stores
// `exiting` and then reads `returning`, so one of the two sees the other.
std::atomic<bool> exiting{false};
std::atomic<int> returning{0};
// When a wait last returned to a caller that had released the lock itself (torch's bindings), which
// takes it again soon after.
std::atomic<std::int64_t> last_bare_return_ms{0};

// Exit handlers that still run after end_waits() may join a thread that stays: not for ever.
constexpr auto kLongestStay = std::chrono::seconds(5);
constexpr auto kStayPoll = std::chrono::milliseconds(10);
constexpr std::int64_t kBareReturnMs = 300;  // many threads may ask for the lock

std::int64_t now_ms() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

void stay_if_finalizing() {
  if (interpreter_is_ending()) {
    while (true) {
      pause();
    }
  }
}

// Back into the interpreter, or never. A thread that goes on while the exit handlers run would find
// the interpreter ending at its next wait, maybe in the middle of asking for the lock.
void come_back(PyThreadState* state) {
  if (gettid() == getpid()) {
    if (state != nullptr) {
      PyEval_RestoreThread(state);
    }
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kLongestStay;
  while (true) {
    stay_if_finalizing();
    returning.fetch_add(1, std::memory_order_seq_cst);
    if (!exiting.load(std::memory_order_seq_cst) || std::chrono::steady_clock::now() > deadline) {
      break;
    }
    returning.fetch_sub(1, std::memory_order_seq_cst);
    std::this_thread::sleep_for(kStayPoll);
  }
  if (state != nullptr) {
    PyEval_RestoreThread(state);
  } else {
    last_bare_return_ms.store(now_ms(), std::memory_order_relaxed);
  }
  returning.fetch_sub(1, std::memory_order_seq_cst);
}

// Waits once, without the lock if this thread has it.
orError_t wait_slice(bool gil, std::int64_t slice_ms,
                     const std::function<orError_t(std::int64_t)>& wait) {
  PyThreadState* state = gil ? PyEval_SaveThread() : nullptr;
  const orError_t error = wait(slice_ms);
  come_back(state);
  return error;
}

// Raises what a signal (Ctrl-C) has left for the main thread, which alone handles them. `gil`: this
// thread has the lock. Otherwise torch has released it around the call that waits here (item(),
// cpu(), Stream.synchronize()), and it is taken for the length of this question.
void check_signals(bool gil) {
  if (gil) {
    if (PyErr_CheckSignals() != 0) {
      throw pybind11::error_already_set();
    }
    return;
  }
  if (gettid() != getpid() || interpreter_is_ending()) {
    return;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  std::exception_ptr error;
  if (PyErr_CheckSignals() != 0) {
    error = std::make_exception_ptr(pybind11::error_already_set());
  }
  PyGILState_Release(state);
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

}  // namespace

void come_back_from_wait(void* thread_state) {
  come_back(static_cast<PyThreadState*>(thread_state));
}

void end_waits() {
  exiting.store(true, std::memory_order_seq_cst);
  const auto deadline = std::chrono::steady_clock::now() + kLongestStay;
  while (returning.load(std::memory_order_seq_cst) != 0 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::int64_t since_ms = now_ms() - last_bare_return_ms.load(std::memory_order_relaxed);
  if (since_ms < kBareReturnMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kBareReturnMs - since_ms));
  }
}

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
    check_signals(gil);
    if (timeout_ms >= 0 && Clock::now() >= deadline) {
      return error;
    }
  }
}

}  // namespace torch_openreg
