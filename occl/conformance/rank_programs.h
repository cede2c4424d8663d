// What ranks that are processes do in several tests, and what their exit status says.
#ifndef OCCL_CONFORMANCE_RANK_PROGRAMS_H_
#define OCCL_CONFORMANCE_RANK_PROGRAMS_H_

#include <cstdio>
#include <cstring>
#include <string>

#include "occl/conformance/ranks.h"

namespace occl_conformance {

// What a child's exit status says. Children report what they see on stderr.
enum Exit { kFine = 0, kSetupFailed = 10, kWrongResult = 11, kWrongMessage = 12, kLate = 13 };

inline int Join(int rank, int nranks, const occlUniqueId& id, int64_t timeout_ms,
                occlComm_t* comm) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = timeout_ms;
  config.initTimeout_ms = 60'000;
  if (occlCommInitRank(comm, nranks, id, rank, &config) == occlSuccess) return kFine;
  std::fprintf(stderr, "rank %d: init: %s\n", rank, occlGetLastError(nullptr));
  return kSetupFailed;
}

// All-reduces `count` floats until that fails; returns what the failure was.
inline occlResult_t ReduceUntilFailure(occlComm_t comm, size_t count, std::string* message) {
  DeviceBuffer buffer(count * 4);
  std::memset(buffer.host(), 0, count * 4);
  while (true) {
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    occlResult_t result = occlAllReduce(buffer.device(), buffer.device(), count, occlFloat32,
                                        occlSum, comm, nullptr, &options);
    if (result == occlSuccess) {
      result = occlRequestWait(request, 60'000);
      occlRequestFree(request);
    }
    if (result != occlSuccess) {
      *message = occlGetLastError(comm);
      return result;
    }
  }
}

}  // namespace occl_conformance

#endif  // OCCL_CONFORMANCE_RANK_PROGRAMS_H_
