// The border between the C API and the runtime: every function of the API runs its body through
// Enter, which finds the runtime, keeps exceptions inside and turns a Status into the enum and the
// thread's last error.
#ifndef OPENREG_RUNTIME_CAPI_ERROR_H_
#define OPENREG_RUNTIME_CAPI_ERROR_H_

#include <cxxabi.h>

#include <new>

#include "openreg/api/openreg.h"
#include "openreg/runtime/runtime.h"
#include "openreg/runtime/status.h"

namespace openreg {

// Sets the thread's last error and message; returns the code.
orError_t Fail(const Status& status);

inline orError_t Report(const Status& status) {
  if (status.ok()) [[likely]]
    return orSuccess;
  return Fail(status);
}

// The calling thread's current device.
inline thread_local int current_device = 0;

inline Status NullArgument(const char* name) {
  return Status(orErrorInvalidValue, Format("the out-parameter `%s` is NULL", name));
}

// body: Status(Runtime&).
template <class F>
orError_t Enter(F&& body) {
  try {
    Runtime* runtime = Runtime::Current();
    if (runtime == nullptr) [[unlikely]] {
      Status status = Runtime::Get(&runtime);
      if (!status.ok()) return Fail(status);
    }
    return Report(body(*runtime));
  } catch (const std::bad_alloc&) {
    return Fail(Status(orErrorMemoryAllocation, "the host's memory is exhausted"));
  } catch (abi::__forced_unwind&) {
    throw;  // the thread is being ended
  } catch (...) {
    return Fail(Status(orErrorUnknown, "an unexpected exception was caught"));
  }
}

// For functions that work without the device. body: Status().
template <class F>
orError_t EnterWithoutDevice(F&& body) {
  try {
    return Report(body());
  } catch (...) {
    return Fail(Status(orErrorUnknown, "an unexpected exception was caught"));
  }
}

}  // namespace openreg

#define OPENREG_CHECK_OUT(parameter) \
  if ((parameter) == nullptr) return ::openreg::NullArgument(#parameter)

#endif  // OPENREG_RUNTIME_CAPI_ERROR_H_
