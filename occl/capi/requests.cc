// Requests and groups.
#include "occl/capi/shim.h"
#include "occl/core/group.h"

using occl::CommOp;
using occl::Deadline;
using occl::Error;
using occl::Ref;
using occl::Status;
using occl::capi::FromHandle;
using occl::capi::Run;

extern "C" {

occlResult_t occlRequestTest(occlRequest_t request, int* done) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestTest", request);
    OCCL_CHECK_NOT_NULL("occlRequestTest", done);
    *done = FromHandle(request)->complete() ? 1 : 0;
    return Status();
  });
}

occlResult_t occlRequestWait(occlRequest_t request, int64_t timeout_ms) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestWait", request);
    CommOp* op = FromHandle(request);
    if (!op->WaitComplete(Deadline::After(timeout_ms))) {
      return Error(occlTimeout, "%s still runs after this wait of %lld ms", op->name(),
                   static_cast<long long>(timeout_ms));
    }
    return op->status();
  });
}

occlResult_t occlRequestGetResult(occlRequest_t request, occlResult_t* result,
                                  const char** message) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestGetResult", request);
    OCCL_CHECK_NOT_NULL("occlRequestGetResult", result);
    const bool complete = FromHandle(request)->complete();
    *result = complete ? FromHandle(request)->status().code() : occlInProgress;
    if (message != nullptr) {
      *message = complete ? FromHandle(request)->status().message().c_str() : "";
    }
    return Status();
  });
}

occlResult_t occlRequestGetTimes(occlRequest_t request, int64_t* start_ns, int64_t* end_ns) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestGetTimes", request);
    OCCL_CHECK_NOT_NULL("occlRequestGetTimes", start_ns);
    OCCL_CHECK_NOT_NULL("occlRequestGetTimes", end_ns);
    if (!FromHandle(request)->complete()) {
      return Error(occlInvalidUsage, "occlRequestGetTimes: the %s is not complete",
                   FromHandle(request)->name());
    }
    *start_ns = FromHandle(request)->start_ns();
    *end_ns = FromHandle(request)->end_ns();
    return Status();
  });
}

occlResult_t occlRequestGetSource(occlRequest_t request, int* source) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestGetSource", request);
    OCCL_CHECK_NOT_NULL("occlRequestGetSource", source);
    const CommOp* op = FromHandle(request);
    if (op->kind() != occl::OpKind::kRecv || !op->complete() || !op->status().ok()) {
      return Error(occlInvalidUsage,
                   "occlRequestGetSource: needs a receive that has completed successfully");
    }
    *source = op->source();
    return Status();
  });
}

occlResult_t occlRequestFree(occlRequest_t request) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRequestFree", request);
    const Ref<CommOp> op = Ref<CommOp>::Adopt(FromHandle(request));
    return Status();
  });
}

occlResult_t occlGroupStart(void) {
  return Run([]() -> Status {
    occl::StartGroup();
    return Status();
  });
}

occlResult_t occlGroupEnd(void) {
  return Run([]() -> Status { return occl::EndGroup(); });
}

}  // extern "C"
