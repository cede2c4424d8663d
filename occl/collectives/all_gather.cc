#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeAllGather(Comm& comm, const void* send, void* recv, size_t count,
                     occlDataType_t datatype, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kAllGather, datatype, spec));
  const size_t n = comm.nranks();
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, 1, *spec, &spec->send));
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, n, *spec, &spec->recv));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, bytes}, {spec->recv, n * bytes}, spec->send,
                      spec->recv + comm.rank() * bytes);
}

Status MakeAllGatherv(Comm& comm, const void* send, void* const* recvs, const size_t* counts,
                      occlDataType_t datatype, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kAllGather, datatype, spec));
  spec->uneven = true;
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "recvbuffs", recvs, counts, comm.nranks(), *spec, &spec->recv_parts));
  spec->count = counts[comm.rank()];
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "sendbuff", &send, &counts[comm.rank()], 1, *spec, &spec->send_parts));
  return CheckPartsOverlap(*spec, spec->send_parts, spec->recv_parts, &spec->send_parts[0],
                           &spec->recv_parts[comm.rank()]);
}

}  // namespace occl
