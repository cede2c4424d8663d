#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeAllToAll(Comm& comm, const void* send, void* recv, size_t count, occlDataType_t datatype,
                    CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kAllToAll, datatype, spec));
  const size_t n = comm.nranks();
  spec->part_per_rank = true;
  spec->count = count;
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "sendbuff", send, count, n, *spec, &spec->send));
  OCCL_RETURN_IF_ERROR(CheckBuffer(comm, "recvbuff", recv, count, n, *spec, &spec->recv));
  const size_t bytes = n * count * spec->element_bytes;
  return CheckOverlap(*spec, {spec->send, bytes}, {spec->recv, bytes}, nullptr, nullptr);
}

Status MakeAllToAllv(Comm& comm, const void* const* sends, const size_t* send_counts,
                     void* const* recvs, const size_t* recv_counts, occlDataType_t datatype,
                     CollectiveSpec* spec) {
  OCCL_RETURN_IF_ERROR(StartSpec(OpKind::kAllToAll, datatype, spec));
  spec->part_per_rank = true;
  spec->uneven = true;
  const int n = comm.nranks();
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "sendbuffs", sends, send_counts, n, *spec, &spec->send_parts));
  OCCL_RETURN_IF_ERROR(
      CheckParts(comm, "recvbuffs", recvs, recv_counts, n, *spec, &spec->recv_parts));
  for (const Part& part : spec->send_parts) spec->count += part.count;
  if (send_counts[comm.rank()] != recv_counts[comm.rank()]) {
    return Error(occlInvalidArgument,
                 "all_to_all: rank %d sends %zu elements to itself and receives %zu", comm.rank(),
                 send_counts[comm.rank()], recv_counts[comm.rank()]);
  }
  return CheckPartsOverlap(*spec, spec->send_parts, spec->recv_parts, nullptr, nullptr);
}

}  // namespace occl
