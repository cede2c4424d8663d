// How a failure of the openreg C API becomes an exception of torch.
#ifndef PYTHON_CSRC_RUNTIME_STATUS_H_
#define PYTHON_CSRC_RUNTIME_STATUS_H_

#include <c10/util/Exception.h>

#include <atomic>
#include <exception>
#include <string>

#include "openreg/api/openreg.h"

namespace torch_openreg {

// Throws the exception that stands for `error`; the text carries the runtime's own message
// (orGetLastErrorMessage of this thread, so call it before anything else touches the runtime):
//   orErrorMemoryAllocation -> c10::OutOfMemoryError   (torch.OutOfMemoryError)
//   orErrorNotSupported     -> c10::NotImplementedError
//   anything else           -> c10::AcceleratorError   (torch.AcceleratorError, a RuntimeError;
//                              its error_code is the orError_t)
// orErrorLaunchFailure stands for work that failed on the worker of `stream` (nullptr: of any
// stream) and was noted there: its text is added. If what failed is an operation of
// torch.distributed, its own exception (c10::DistBackendError) is thrown instead, so that whoever
// catches it catches it wherever it surfaces.
[[noreturn]] void throw_error(orError_t error, const char* call, orStream_t stream = nullptr);

// Keeps what `name` threw on the worker of `stream`, for the exception that the next synchronise or
// query raises. Thread-safe; bounded.
void note_async_failure(orStream_t stream, const char* name, std::exception_ptr failure) noexcept;

namespace detail {
// True while a failure is noted that nobody was told of. Relaxed: a hint, read in hot paths; the
// thread that emptied the stream sees what its worker noted.
extern std::atomic<bool> async_failure_noted;
}  // namespace detail

// For destructors and other places that must not throw: one warning on stderr.
void warn_error(orError_t error, const char* call) noexcept;

}  // namespace torch_openreg

// Evaluates an openreg call once and throws if it failed.
#define OR_CHECK(call)                                      \
  do {                                                      \
    const orError_t or_check_error_ = (call);               \
    if (or_check_error_ != orSuccess) [[unlikely]] {        \
      ::torch_openreg::throw_error(or_check_error_, #call); \
    }                                                       \
  } while (0)

// The same where an exception is not allowed: it only warns.
#define OR_WARN(call)                                      \
  do {                                                     \
    const orError_t or_check_error_ = (call);              \
    if (or_check_error_ != orSuccess) [[unlikely]] {       \
      ::torch_openreg::warn_error(or_check_error_, #call); \
    }                                                      \
  } while (0)

#endif  // PYTHON_CSRC_RUNTIME_STATUS_H_
