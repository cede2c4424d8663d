#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeGather(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                  int root, CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kGather, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckRoot(comm, root, spec));
  spec->flow = Flow::kToRoot;
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, 1, *spec, &spec->send));
  if (comm.rank() != root) return Status();
  const size_t n = comm.nranks();
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, n, *spec, &spec->recv));
  const size_t bytes = count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, bytes}, {spec->recv, n * bytes}, spec->send,
                      spec->recv + root * bytes);
}

Status MakeGatherv(Comm& comm, const void* send, size_t send_count, void* const* recvs,
                   const size_t* recv_counts, occlDataType_t datatype, int root,
                   CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kGather, datatype, spec));
  OCCL_RETURN_IF_ERROR(CheckRoot(comm, root, spec));
  spec->flow = Flow::kToRoot;
  spec->uneven = true;
  spec->count = send_count;
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "sendbuff", &send, &send_count, 1, *spec, &spec->send_parts));
  if (comm.rank() != root) return Status();
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "recvbuffs", recvs, recv_counts, comm.nranks(), *spec, &spec->recv_parts));
  if (recv_counts[root] != send_count) {
    return Error(occlInvalidArgument, "gather: recvcounts[root] is %zu, sendcount is %zu",
                 recv_counts[root], send_count);
  }
  return CheckPartsOverlap(*spec, spec->send_parts, spec->recv_parts, &spec->send_parts[0],
                           &spec->recv_parts[root]);
}

}  // namespace occl
