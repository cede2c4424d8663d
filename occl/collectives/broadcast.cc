#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeBroadcast(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, int root, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kBroadcast, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckRoot(comm, root, spec));
  spec->flow = Flow::kFromRoot;
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, 1, *spec, &spec->recv));
  if (comm.rank() != root) return Status();
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, 1, *spec, &spec->send));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, bytes}, {spec->recv, bytes}, spec->send, spec->recv);
}

}  // namespace occl
