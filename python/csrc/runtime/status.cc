#include "python/csrc/runtime/status.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace torch_openreg {
namespace detail {

std::atomic<bool> async_failure_noted{false};

}  // namespace detail

namespace {

// What failed on a stream since the last time somebody was told.
struct AsyncFailure {
  std::string text;
  std::exception_ptr distributed;  // the first c10::DistError among them
  bool told = false;               // along with the failures of another stream
};

// Never destroyed: workers may still run while the process exits.
struct AsyncFailures {
  static constexpr std::size_t kMaxBytes = 4096;   // of one stream's text
  static constexpr std::size_t kMaxStreams = 256;  // that nobody synchronises

  std::mutex mutex;
  std::map<orStream_t, AsyncFailure> of_stream;  // guarded by mutex
};

AsyncFailures& async_failures() {
  static auto* failures = new AsyncFailures;
  return *failures;
}

void add(const AsyncFailure& failure, AsyncFailure* sum) {
  sum->text += failure.text;
  if (sum->distributed == nullptr) {
    sum->distributed = failure.distributed;
  }
}

// What there is to tell of an error of `stream` (nullptr: of any). The runtime hands an error on to
// streams that wait for the one where it was left, and keeps one a stream: which failure it stands
// for is not known, so those of the other streams are told as well. An error of theirs that the
// runtime still has is told with the same words again, wherever it is read.
AsyncFailure take_async_failures(orStream_t stream) {
  AsyncFailures& failures = async_failures();
  AsyncFailure taken;
  std::lock_guard<std::mutex> lock(failures.mutex);
  if (const auto own = failures.of_stream.find(stream); own != failures.of_stream.end()) {
    add(own->second, &taken);
    failures.of_stream.erase(own);
  }
  const auto tell = [&](bool again) {
    for (auto& [other, failure] : failures.of_stream) {
      if (failure.told == again) {
        add(failure, &taken);
      }
    }
  };
  tell(/*again=*/false);
  if (taken.text.empty()) {
    tell(/*again=*/true);
  }
  for (auto& [other, failure] : failures.of_stream) {
    failure.told = true;
  }
  if (stream == nullptr) {
    failures.of_stream.clear();
  }
  detail::async_failure_noted.store(!failures.of_stream.empty(), std::memory_order_relaxed);
  return taken;
}

std::string what_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

bool is_distributed(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::DistError&) {
    return true;
  } catch (...) {
    return false;
  }
}

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

}  // namespace

void note_async_failure(orStream_t stream, const char* name, std::exception_ptr failure) noexcept {
  try {
    const std::string what = what_of(failure);
    AsyncFailures& failures = async_failures();
    std::lock_guard<std::mutex> lock(failures.mutex);
    if (failures.of_stream.size() >= AsyncFailures::kMaxStreams) {
      std::erase_if(failures.of_stream, [](const auto& entry) { return entry.second.told; });
    }
    if (failures.of_stream.size() >= AsyncFailures::kMaxStreams &&
        failures.of_stream.count(stream) == 0) {
      return;
    }
    AsyncFailure& of_stream = failures.of_stream[stream];
    if (of_stream.told) {
      of_stream = AsyncFailure();
    }
    detail::async_failure_noted.store(true, std::memory_order_relaxed);
    if (of_stream.text.size() < AsyncFailures::kMaxBytes) {
      of_stream.text.append("\n").append(name).append(" failed on its stream: ").append(what);
    }
    if (of_stream.distributed == nullptr && is_distributed(failure)) {
      of_stream.distributed = std::move(failure);
    }
  } catch (...) {
    // Out of host memory: the error code still reaches the caller, without the text.
  }
}

void throw_error(orError_t error, const char* call, orStream_t stream) {
  const c10::SourceLocation where = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  AsyncFailure failures;
  if (error == orErrorLaunchFailure) {
    failures = take_async_failures(stream);
    if (failures.distributed != nullptr) {
      const std::string first = what_of(failures.distributed);
      if (std::count(failures.text.begin(), failures.text.end(), '\n') <= 1) {
        std::rethrow_exception(failures.distributed);
      }
      // All have been taken, so all are told.
      C10_THROW_ERROR(DistBackendError, c10::str(first, "\nall that failed:", failures.text));
    }
  }
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

void warn_error(orError_t error, const char* call) noexcept {
  std::fprintf(stderr, "torch_openreg: %s: %s (%s)\n", call, orGetErrorName(error),
               orGetLastErrorMessage());
}

}  // namespace torch_openreg
