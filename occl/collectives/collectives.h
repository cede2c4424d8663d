// Arguments of the collectives, checked and turned into specs. One file per collective; each
// function's contract is its C counterpart's in occl/api/occl.h. On an error nothing has happened.
#ifndef OCCL_COLLECTIVES_COLLECTIVES_H_
#define OCCL_COLLECTIVES_COLLECTIVES_H_

#include <cstddef>

#include "occl/base/status.h"
#include "occl/core/collective_spec.h"
#include "occl/core/comm.h"
#include "occl/core/message_op.h"

namespace occl {

Status MakeAllReduce(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec);
Status MakeBroadcast(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, int root, CollectiveSpec* spec);
Status MakeReduce(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                  occlRedOp_t op, int root, CollectiveSpec* spec);
Status MakeAllGather(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, CollectiveSpec* spec);
Status MakeAllGatherv(Comm& comm, const void* send, void* const* recvs, const size_t* counts,
                      occlDataType_t datatype, CollectiveSpec* spec);
Status MakeReduceScatter(Comm& comm, const void* send, void* recv, size_t count,
                         occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec);
Status MakeReduceScatterv(Comm& comm, const void* const* sends, void* recv, const size_t* counts,
                          occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec);
Status MakeGather(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                  int root, CollectiveSpec* spec);
Status MakeGatherv(Comm& comm, const void* send, size_t send_count, void* const* recvs,
                   const size_t* recv_counts, occlDataType_t datatype, int root,
                   CollectiveSpec* spec);
Status MakeScatter(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                   int root, CollectiveSpec* spec);
Status MakeScatterv(Comm& comm, const void* const* sends, const size_t* send_counts, void* recv,
                    size_t recv_count, occlDataType_t datatype, int root, CollectiveSpec* spec);
Status MakeAllToAll(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                    CollectiveSpec* spec);
Status MakeAllToAllv(Comm& comm, const void* const* sends, const size_t* send_counts,
                     void* const* recvs, const size_t* recv_counts, occlDataType_t datatype,
                     CollectiveSpec* spec);
Status MakeBarrier(CollectiveSpec* spec);
// `receive`: peer and tag may be wildcards.
Status MakeMessage(Comm& comm, void* data, size_t count, occlDataType_t datatype, int peer, int tag,
                   bool receive, MessageSpec* spec);

}  // namespace occl

#endif  // OCCL_COLLECTIVES_COLLECTIVES_H_
