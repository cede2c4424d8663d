#include "python/csrc/runtime/status.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "python/csrc/runtime/log.h"

namespace torch_openreg {
namespace {

std::string describe(orError_t error, const char* call, const std::string& failures) {
  const std::string detail = orGetLastErrorMessage();
  std::string text = "openreg error: ";
  text += orGetErrorString(error);
  if (!detail.empty()) {
    text += "\n" + detail;
  }
  text += failures;
  text += "\n(";
  text += orGetErrorName(error);
  text += " from ";
  // Only the function's name: the arguments of OR_CHECK's text are the binding's own.
  for (const char* c = call; *c != '\0' && *c != '('; ++c) {
    text += *c;
  }
  return text + ")";
}

std::string what_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

bool is_async(orError_t error) {
  return error == orErrorNotedFailure || error == orErrorLaunchFailure;
}

[[noreturn]] void throw_with(orError_t error, const char* call, const ToldFailures& failures) {
  const c10::SourceLocation where = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (failures.distributed != nullptr) {
    if (std::count(failures.text.begin(), failures.text.end(), '\n') <= 1) {
      std::rethrow_exception(failures.distributed);
    }
    // All that is told together.
    C10_THROW_ERROR(DistBackendError,
                    c10::str(what_of(failures.distributed), "\nall that failed:", failures.text));
  }
  // The note is the binding's own.
  error = error == orErrorNotedFailure ? orErrorLaunchFailure : error;
  std::string text = describe(error, call, failures.text);
  switch (error) {
    case orErrorMemoryAllocation:
      throw c10::OutOfMemoryError(where, std::move(text));
    case orErrorNotSupported:
      throw c10::NotImplementedError(where, std::move(text));
    default:
      throw c10::AcceleratorError(where, static_cast<int32_t>(error), std::move(text));
  }
}

}  // namespace

void throw_error(orError_t error, const char* call) {
  throw_with(error, call, is_async(error) ? tell_async_failures({}, /*all=*/true) : ToldFailures());
}

void throw_unless_forgotten(orError_t error, const char* call, const ErrorSource& source) {
  ToldFailures failures;
  if (is_async(error)) {
    failures = tell_async_failures(source, /*all=*/error != orErrorNotedFailure);
    if (failures.forgotten && failures.text.empty()) {
      return;
    }
  }
  throw_with(error, call, failures);
}

void warn_error(orError_t error, const char* call) noexcept {
  try {
    log_line(Severity::kWarning, -1,
             c10::str(call, ": ", orGetErrorName(error), " (", orGetLastErrorMessage(), ")"));
  } catch (const std::exception&) {
    // No memory for a line of text.
  }
}

}  // namespace torch_openreg
