#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeScatter(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                   int root, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kScatter, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckRoot(comm, root, spec));
  spec->flow = Flow::kFromRoot;
  spec->part_per_rank = true;
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, 1, *spec, &spec->recv));
  if (comm.rank() != root) return Status();
  const size_t n = comm.nranks();
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, n, *spec, &spec->send));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, n * bytes}, {spec->recv, bytes},
                      spec->send + root * bytes, spec->recv);
}

Status MakeScatterv(Comm& comm, const void* const* sends, const size_t* send_counts, void* recv,
                    size_t recv_count, occlDataType_t datatype, int root, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kScatter, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckRoot(comm, root, spec));
  spec->flow = Flow::kFromRoot;
  spec->part_per_rank = true;
  spec->uneven = true;
  spec->count = recv_count;
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "recvbuff", &recv, &recv_count, 1, *spec, &spec->recv_parts));
  if (comm.rank() != root) return Status();
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "sendbuffs", sends, send_counts, comm.nranks(), *spec, &spec->send_parts));
  if (send_counts[root] != recv_count) {
    return Error(occlInvalidArgument, "scatter: sendcounts[root] is %zu, recvcount is %zu",
                 send_counts[root], recv_count);
  }
  return CheckPartsOverlap(*spec, spec->send_parts, spec->recv_parts, &spec->send_parts[root],
                           &spec->recv_parts[0]);
}

}  // namespace occl
