// From checked arguments to an operation in flight.
#ifndef OCCL_CAPI_ISSUE_H_
#define OCCL_CAPI_ISSUE_H_

#include "occl/capi/shim.h"
#include "occl/core/collective_op.h"
#include "occl/core/message_op.h"

namespace occl::capi {

// What all operations' C functions begin with: the communicator is good, the options are known.
Status CheckCall(const char* function, occlComm_t comm, const occlCallOptions_t* options);
// Gives the operation to its stream, or to the thread's group.
Status IssueOp(Ref<CommOp> op, Comm& comm, orStream_t stream, const occlCallOptions_t* options);

// `make`: Status(Comm&, CollectiveSpec*).
template <typename Make>
occlResult_t IssueCollective(const char* function, occlComm_t comm, orStream_t stream,
                             const occlCallOptions_t* options, Make make);
// `make`: Status(Comm&, MessageSpec*).
template <typename OpType, typename Make>
occlResult_t IssueMessage(const char* function, occlComm_t comm, orStream_t stream,
                          const occlCallOptions_t* options, Make make);

// ---- implementation

// An error inside a group spoils the group.
Status NoteInGroup(const Status& status);

template <typename Make>
occlResult_t IssueCollective(const char* function, occlComm_t comm, orStream_t stream,
                             const occlCallOptions_t* options, Make make) {
  return Run([&]() -> Status {
    Status status = CheckCall(function, comm, options);
    if (!status.ok()) return NoteInGroup(status);
    status = AwaitAllRanks(*FromHandle(comm));
    if (!status.ok()) return NoteInGroup(status);
    Ref<CollectiveOp> op = MakeRef<CollectiveOp>(Ref<Comm>(FromHandle(comm)));
    status = op->Specify(make);
    if (!status.ok()) return NoteInGroup(status);
    return NoteInGroup(IssueOp(std::move(op), *FromHandle(comm), stream, options));
  });
}

template <typename OpType, typename Make>
occlResult_t IssueMessage(const char* function, occlComm_t comm, orStream_t stream,
                          const occlCallOptions_t* options, Make make) {
  return Run([&]() -> Status {
    Status status = CheckCall(function, comm, options);
    if (!status.ok()) return NoteInGroup(status);
    MessageSpec spec;
    status = make(*FromHandle(comm), &spec);
    if (!status.ok()) return NoteInGroup(status);
    Ref<CommOp> op = Ref<CommOp>::Adopt(new OpType(Ref<Comm>(FromHandle(comm)), spec));
    return NoteInGroup(IssueOp(std::move(op), *FromHandle(comm), stream, options));
  });
}

}  // namespace occl::capi

#endif  // OCCL_CAPI_ISSUE_H_
