#include "occl/capi/issue.h"

#include "occl/core/executor.h"
#include "occl/core/group.h"

namespace occl::capi {

Status CheckCall(const char* function, occlComm_t comm, const occlCallOptions_t* options) {
  OCCL_CHECK_NOT_NULL(function, comm);
  if (options != nullptr) {
    if (options->structSize != sizeof(occlCallOptions_t)) {
      return Error(occlInvalidArgument,
                   "%s: options->structSize is %zu, expected %zu: set it with "
                   "OCCL_CALL_OPTIONS_INITIALIZER",
                   function, options->structSize, sizeof(occlCallOptions_t));
    }
    if ((options->flags & ~OCCL_CALL_ASYNC) != 0) {
      return Error(occlInvalidArgument, "%s: options->flags has unknown bits: 0x%x", function,
                   options->flags);
    }
  }
  return FromHandle(comm)->good() ? Status() : FromHandle(comm)->failure();
}

Status NoteInGroup(const Status& status) {
  if (!status.ok() && InGroup()) SpoilGroup(status);
  return status;
}

Status IssueOp(Ref<CommOp> op, Comm& comm, orStream_t stream, const occlCallOptions_t* options) {
  Call call;
  call.stream = stream != nullptr ? stream : comm.default_stream();
  Ref<CommOp> request;
  if (options != nullptr) {
    op->set_timeout_ms(options->timeout_ms);
    call.async = (options->flags & OCCL_CALL_ASYNC) != 0;
    if (options->request != nullptr) request = op;
  }
  call.op = std::move(op);
  if (InGroup()) {
    AddToGroup(std::move(call));
  } else {
    OCCL_RETURN_IF_ERROR(Launch(std::move(call)));
  }
  if (request) *options->request = ToHandle(std::move(request));
  return Status();
}

}  // namespace occl::capi
