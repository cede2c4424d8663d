// How a failure of the openreg C API becomes an exception of torch.
#ifndef PYTHON_CSRC_RUNTIME_STATUS_H_
#define PYTHON_CSRC_RUNTIME_STATUS_H_

#include <c10/util/Exception.h>

#include "openreg/api/openreg.h"
#include "python/csrc/runtime/async_failures.h"

namespace torch_openreg {

// Throws the exception that stands for `error`; the text carries the runtime's own message
// (orGetLastErrorMessage of this thread, so call it before anything else touches the runtime):
//   orErrorMemoryAllocation -> c10::OutOfMemoryError   (torch.OutOfMemoryError)
//   orErrorNotSupported     -> c10::NotImplementedError
//   anything else           -> c10::AcceleratorError   (torch.AcceleratorError, a RuntimeError;
//                              its error_code is the orError_t)
// orErrorNotedFailure (told as orErrorLaunchFailure) and orErrorLaunchFailure stand for work that
// failed on a worker, and was noted there (async_failures.h): its text is added. If what failed is
// an operation of torch.distributed, its own exception (c10::DistBackendError) is thrown instead,
// so that whoever catches it catches it wherever it surfaces.
[[noreturn]] void throw_error(orError_t error, const char* call);

// The same for calls that report what work has left on a stream after they have done their own, but
// returns, and the call counts as successful, if the error stands for nothing but failures that are
// forgotten: of groups that the user has ended after having been told. A runtime that reports
// orErrorLaunchFailure in the place of orErrorNotedFailure has these raised once more.
void throw_unless_forgotten(orError_t error, const char* call, const ErrorSource& source = {});

// For destructors and other places that must not throw: one warning on stderr.
void warn_error(orError_t error, const char* call) noexcept;

}  // namespace torch_openreg

// Evaluates an openreg call once and throws if it failed (throw_unless_forgotten).
#define OR_CHECK(call)                                                 \
  do {                                                                 \
    const orError_t or_check_error_ = (call);                          \
    if (or_check_error_ != orSuccess) [[unlikely]] {                   \
      ::torch_openreg::throw_unless_forgotten(or_check_error_, #call); \
    }                                                                  \
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
