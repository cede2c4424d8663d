// Logging, changed while the process runs, and what is known of those that others wait for.
#include <cstdio>

#include "occl/api/occl_debug.h"
#include "occl/base/log.h"
#include "occl/capi/shim.h"
#include "occl/core/waits.h"

using occl::Error;
using occl::Status;
using occl::capi::FromHandle;
using occl::capi::Run;

extern "C" {

occlResult_t occlSetDebugLevel(const char* level) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlSetDebugLevel", level);
    if (occl::SetLogLevel(level)) return Status();
    return Error(occlInvalidArgument,
                 "occlSetDebugLevel: level is '%s', expected NONE, VERSION, WARN, INFO or TRACE",
                 level);
  });
}

occlResult_t occlGetProcessWaits(int64_t pid, char* text, size_t capacity) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlGetProcessWaits", text);
    if (capacity == 0) {
      return Error(occlInvalidArgument, "occlGetProcessWaits: capacity is 0, expected room");
    }
    std::snprintf(text, capacity, "%s", occl::WaitBoard::ReadProcess(pid).c_str());
    return Status();
  });
}

occlResult_t occlRequestTellWait(occlComm_t comm, occlRequest_t request, char* text,
                                 size_t capacity) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestTellWait", comm);
    OCCL_CHECK_NOT_NULL("occlRequestTellWait", request);
    OCCL_CHECK_NOT_NULL("occlRequestTellWait", text);
    if (capacity == 0) {
      return Error(occlInvalidArgument, "occlRequestTellWait: capacity is 0, expected room");
    }
    const std::string told = FromHandle(request)->TellPending(*FromHandle(comm));
    std::snprintf(text, capacity, "%s", told.c_str());
    return Status();
  });
}

}  // extern "C"
