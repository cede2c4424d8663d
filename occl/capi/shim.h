// The border between the C API and the library: status values become codes and messages, C handles
// become objects, and nothing is thrown across.
#ifndef OCCL_CAPI_SHIM_H_
#define OCCL_CAPI_SHIM_H_

#include <new>

#include "occl/base/ref.h"
#include "occl/base/status.h"
#include "occl/core/comm.h"
#include "occl/core/op.h"

namespace occl::capi {

// Keeps the message of a failure for occlGetLastError(NULL) and returns the code.
occlResult_t Report(const Status& status);
// The calling thread's message; `text` is kept for the thread.
const char* LastMessage();
const char* KeepCommMessage(const std::string& text);

// A handle is a pointer to the object and owns one reference.
inline Comm* FromHandle(occlComm_t comm) { return reinterpret_cast<Comm*>(comm); }
inline CommOp* FromHandle(occlRequest_t request) { return reinterpret_cast<CommOp*>(request); }
inline occlComm_t ToHandle(Ref<Comm> comm) { return reinterpret_cast<occlComm_t>(comm.Release()); }
inline occlRequest_t ToHandle(Ref<CommOp> op) {
  return reinterpret_cast<occlRequest_t>(op.Release());
}

// Runs the body of a C function. The only exception that can arise is that memory is exhausted.
template <typename Body>
occlResult_t Run(Body body) {
  try {
    const Status status = body();
    return status.ok() ? occlSuccess : Report(status);
  } catch (const std::bad_alloc&) {
    return Report(Status(occlSystemError, "host memory is exhausted"));
  }
}

inline Status NullArgument(const char* function, const char* parameter) {
  return Error(occlInvalidArgument, "%s: %s is NULL", function, parameter);
}

}  // namespace occl::capi

// For the first lines of a C function's body.
#define OCCL_CHECK_NOT_NULL(function, parameter) \
  if ((parameter) == nullptr) return ::occl::capi::NullArgument(function, #parameter)

#endif  // OCCL_CAPI_SHIM_H_
