#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeAllReduce(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kAllReduce, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckReduction(comm, op, spec));
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, 1, *spec, &spec->send));
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, 1, *spec, &spec->recv));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, bytes}, {spec->recv, bytes}, spec->send, spec->recv);
}

}  // namespace occl
