// The names and explanations of the error codes.
#include "openreg/api/openreg.h"

namespace openreg {
namespace {

struct ErrorText {
  orError_t code;
  const char* name;
  const char* text;
};

#define OPENREG_ERROR(code, text) {code, #code, text}
constexpr ErrorText kErrors[] = {
    OPENREG_ERROR(orSuccess, "no error"),
    OPENREG_ERROR(orErrorInvalidValue, "an argument is out of its range"),
    OPENREG_ERROR(orErrorMemoryAllocation, "device or host memory is exhausted"),
    OPENREG_ERROR(
        orErrorInitializationError,
        "the device cannot be set up, or this is a forked child of a process that used it"),
    OPENREG_ERROR(orErrorInvalidDevice, "there is no such device"),
    OPENREG_ERROR(orErrorInvalidDevicePointer, "the address is not, or no longer, device memory"),
    OPENREG_ERROR(orErrorInvalidResourceHandle,
                  "the stream, event or IPC handle is unknown or was destroyed"),
    OPENREG_ERROR(orErrorNotReady, "asynchronous work has not finished"),
    OPENREG_ERROR(orErrorTimeout, "the deadline has passed"),
    OPENREG_ERROR(orErrorLaunchFailure, "a kernel that was queued earlier reported failure"),
    OPENREG_ERROR(orErrorPeerDead, "the process that owns an imported resource has ended"),
    OPENREG_ERROR(orErrorNotPermitted, "the operation is not allowed here"),
    OPENREG_ERROR(orErrorNotSupported, "this runtime does not have the capability"),
    OPENREG_ERROR(orErrorMapBufferObject, "address space or descriptors for a mapping are gone"),
    OPENREG_ERROR(orErrorOperatingSystem, "a system call failed"),
    OPENREG_ERROR(orErrorNotedFailure, "a kernel that was queued earlier has noted a failure"),
    OPENREG_ERROR(orErrorUnknown, "unknown error"),
};
#undef OPENREG_ERROR

const ErrorText* FindError(orError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.code == error) return &entry;
  }
  return nullptr;
}

}  // namespace
}  // namespace openreg

extern "C" {

const char* orGetErrorName(orError_t error) {
  const openreg::ErrorText* entry = openreg::FindError(error);
  return entry == nullptr ? "orErrorUnrecognized" : entry->name;
}

const char* orGetErrorString(orError_t error) {
  const openreg::ErrorText* entry = openreg::FindError(error);
  return entry == nullptr ? "not an error code of this runtime" : entry->text;
}

}  // extern "C"
