#include "python/csrc/runtime/status.h"

#include <cstdio>
#include <mutex>

namespace torch_openreg {
namespace {

// What failed operators had to say since the last time somebody was told. Never destroyed: workers
// may still run while the process exits.
struct AsyncFailures {
  std::mutex mutex;
  std::string text;  // guarded by mutex
  static constexpr std::size_t kMaxBytes = 4096;
};

AsyncFailures& async_failures() {
  static auto* failures = new AsyncFailures;
  return *failures;
}

std::string take_async_failures() {
  AsyncFailures& failures = async_failures();
  std::lock_guard<std::mutex> lock(failures.mutex);
  return std::exchange(failures.text, {});
}

std::string describe(orError_t error, const char* call) {
  const std::string detail = orGetLastErrorMessage();
  std::string text = "openreg error: ";
  text += orGetErrorString(error);
  if (!detail.empty()) {
    text += "\n" + detail;
  }
  if (error == orErrorLaunchFailure) {
    text += take_async_failures();
  }
  text += "\n(";
  text += orGetErrorName(error);
  text += " from ";
  // Only the function's name: the arguments of OR_CHECK's text are the binding's own.
  for (const char* c = call; *c != '\0' && *c != '('; ++c) {
    text += *c;
  }
  return text + ")";
}

}  // namespace

void note_async_failure(const char* name, const char* what) noexcept {
  try {
    AsyncFailures& failures = async_failures();
    std::lock_guard<std::mutex> lock(failures.mutex);
    if (failures.text.size() < AsyncFailures::kMaxBytes) {
      failures.text.append("\n").append(name).append(" failed on its stream: ").append(what);
    }
  } catch (...) {
    // Out of host memory: the error code still reaches the caller, without the text.
  }
}

void throw_error(orError_t error, const char* call) {
  const c10::SourceLocation where = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  std::string text = describe(error, call);
  switch (error) {
    case orErrorMemoryAllocation:
      throw c10::OutOfMemoryError(where, std::move(text));
    case orErrorNotSupported:
      throw c10::NotImplementedError(where, std::move(text));
    default:
      throw c10::AcceleratorError(where, static_cast<int32_t>(error), std::move(text));
  }
}

void warn_error(orError_t error, const char* call) noexcept {
  std::fprintf(stderr, "torch_openreg: %s: %s (%s)\n", call, orGetErrorName(error),
               orGetLastErrorMessage());
}

}  // namespace torch_openreg
