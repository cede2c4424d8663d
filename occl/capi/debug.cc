// Logging, changed while the process runs.
#include "occl/api/occl_debug.h"
#include "occl/base/log.h"
#include "occl/capi/shim.h"

using occl::Error;
using occl::Status;
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

}  // extern "C"
