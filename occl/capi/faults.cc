// Faults on request.
#include "occl/capi/shim.h"
#include "occl/transport/faulty/faulty.h"

using occl::Status;
using occl::capi::Run;

extern "C" {

occlResult_t occlSetFaults(const occlFaults_t* faults) {
  return Run([&] { return occl::faulty::SetFaults(faults); });
}

occlResult_t occlGetFaultCounts(uint64_t counts[occlNumFaults]) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlGetFaultCounts", counts);
    occl::faulty::GetCounts(counts);
    return Status();
  });
}

}  // extern "C"
