#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeReduceScatter(Comm& comm, const void* send, void* recv, size_t count,
                         occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kReduceScatter, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckReduction(comm, op, spec));
  const size_t n = comm.nranks();
  spec->part_per_rank = true;
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, n, *spec, &spec->send));
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, 1, *spec, &spec->recv));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, n * bytes}, {spec->recv, bytes},
                      spec->send + comm.rank() * bytes, spec->recv);
}

Status MakeReduceScatterv(Comm& comm, const void* const* sends, void* recv, const size_t* counts,
                          occlDataType_t datatype, occlRedOp_t op, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kReduceScatter, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckReduction(comm, op, spec));
  spec->part_per_rank = true;
  spec->uneven = true;
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "sendbuffs", sends, counts, comm.nranks(), *spec, &spec->send_parts));
  spec->count = counts[comm.rank()];
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "recvbuff", &recv, &counts[comm.rank()], 1, *spec, &spec->recv_parts));
  return CheckPartsOverlap(*spec, spec->send_parts, spec->recv_parts,
                           &spec->send_parts[comm.rank()], &spec->recv_parts[0]);
}

}  // namespace occl
