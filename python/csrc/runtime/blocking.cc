#include "python/csrc/runtime/blocking.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace torch_openreg {
namespace {

constexpr std::int64_t kSliceMs = 100;

bool has_gil() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

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
    orError_t error;
    {
      std::optional<pybind11::gil_scoped_release> release;
      if (gil) {
        release.emplace();
      }
      error = wait(slice_ms);
    }
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
