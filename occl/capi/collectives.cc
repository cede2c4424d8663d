// The operations of the C API. Argument checks: occl/collectives.
#include "occl/collectives/collectives.h"

#include "occl/capi/issue.h"

using occl::CollectiveSpec;
using occl::Comm;
using occl::MessageSpec;
using occl::capi::IssueCollective;
using occl::capi::IssueMessage;

extern "C" {

occlResult_t occlAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                           orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective("occlAllReduce", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeAllReduce(c, sendbuff, recvbuff, count, datatype, op, s);
  });
}

occlResult_t occlBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options) {
  return IssueCollective("occlBroadcast", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeBroadcast(c, sendbuff, recvbuff, count, datatype, root, s);
  });
}

occlResult_t occlReduce(const void* sendbuff, void* recvbuff, size_t count, occlDataType_t datatype,
                        occlRedOp_t op, int root, occlComm_t comm, orStream_t stream,
                        const occlCallOptions_t* options) {
  return IssueCollective("occlReduce", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeReduce(c, sendbuff, recvbuff, count, datatype, op, root, s);
  });
}

occlResult_t occlAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options) {
  return IssueCollective("occlAllGather", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeAllGather(c, sendbuff, recvbuff, sendcount, datatype, s);
  });
}

occlResult_t occlAllGatherv(const void* sendbuff, void* const* recvbuffs, const size_t* recvcounts,
                            occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                            const occlCallOptions_t* options) {
  return IssueCollective("occlAllGatherv", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeAllGatherv(c, sendbuff, recvbuffs, recvcounts, datatype, s);
  });
}

occlResult_t occlReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                               orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective(
      "occlReduceScatter", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
        return occl::MakeReduceScatter(c, sendbuff, recvbuff, recvcount, datatype, op, s);
      });
}

occlResult_t occlReduceScatterv(const void* const* sendbuffs, void* recvbuff, const size_t* counts,
                                occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                                orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective(
      "occlReduceScatterv", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
        return occl::MakeReduceScatterv(c, sendbuffs, recvbuff, counts, datatype, op, s);
      });
}

occlResult_t occlGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                        occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                        const occlCallOptions_t* options) {
  return IssueCollective("occlGather", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeGather(c, sendbuff, recvbuff, sendcount, datatype, root, s);
  });
}

occlResult_t occlGatherv(const void* sendbuff, size_t sendcount, void* const* recvbuffs,
                         const size_t* recvcounts, occlDataType_t datatype, int root,
                         occlComm_t comm, orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective("occlGatherv", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeGatherv(c, sendbuff, sendcount, recvbuffs, recvcounts, datatype, root, s);
  });
}

occlResult_t occlScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                         occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                         const occlCallOptions_t* options) {
  return IssueCollective("occlScatter", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeScatter(c, sendbuff, recvbuff, recvcount, datatype, root, s);
  });
}

occlResult_t occlScatterv(const void* const* sendbuffs, const size_t* sendcounts, void* recvbuff,
                          size_t recvcount, occlDataType_t datatype, int root, occlComm_t comm,
                          orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective("occlScatterv", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeScatterv(c, sendbuffs, sendcounts, recvbuff, recvcount, datatype, root, s);
  });
}

occlResult_t occlAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                          occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                          const occlCallOptions_t* options) {
  return IssueCollective("occlAllToAll", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeAllToAll(c, sendbuff, recvbuff, count, datatype, s);
  });
}

occlResult_t occlAllToAllv(const void* const* sendbuffs, const size_t* sendcounts,
                           void* const* recvbuffs, const size_t* recvcounts,
                           occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options) {
  return IssueCollective("occlAllToAllv", comm, stream, options, [&](Comm& c, CollectiveSpec* s) {
    return occl::MakeAllToAllv(c, sendbuffs, sendcounts, recvbuffs, recvcounts, datatype, s);
  });
}

occlResult_t occlBarrier(occlComm_t comm, orStream_t stream, const occlCallOptions_t* options) {
  return IssueCollective("occlBarrier", comm, stream, options,
                         [&](Comm&, CollectiveSpec* s) { return occl::MakeBarrier(s); });
}

occlResult_t occlSend(const void* sendbuff, size_t count, occlDataType_t datatype, int peer,
                      int tag, occlComm_t comm, orStream_t stream,
                      const occlCallOptions_t* options) {
  return IssueMessage<occl::SendOp>(
      "occlSend", comm, stream, options, [&](Comm& c, MessageSpec* s) {
        // Only read: a send never writes its buffer.
        return occl::MakeMessage(c, const_cast<void*>(sendbuff), count, datatype, peer, tag,
                                 /*receive=*/false, s);
      });
}

occlResult_t occlRecv(void* recvbuff, size_t count, occlDataType_t datatype, int peer, int tag,
                      occlComm_t comm, orStream_t stream, const occlCallOptions_t* options) {
  return IssueMessage<occl::RecvOp>(
      "occlRecv", comm, stream, options, [&](Comm& c, MessageSpec* s) {
        return occl::MakeMessage(c, recvbuff, count, datatype, peer, tag, /*receive=*/true, s);
      });
}

}  // extern "C"
