#include "occl/collectives/checks.h"
#include "occl/collectives/collectives.h"

namespace occl {

Status MakeMessage(Comm& comm, void* data, size_t count, occlDataType_t datatype, int peer, int tag,
                   bool receive, MessageSpec* spec) {
  CollectiveSpec buffer;
  OCCL_RETURN_IF_ERROR(StartSpec(receive ? OpKind::kRecv : OpKind::kSend, datatype, &buffer));
  const bool any_peer = receive && peer == OCCL_ANY_SOURCE;
  if (!any_peer && (peer < 0 || peer >= comm.nranks())) {
    return Error(occlInvalidArgument, "%s: peer is %d, expected 0 to %d%s", OpName(buffer.kind),
                 peer, comm.nranks() - 1, receive ? " or OCCL_ANY_SOURCE" : "");
  }
  const bool any_tag = receive && tag == OCCL_ANY_TAG;
  if (!any_tag && tag < 0) {
    return Error(occlInvalidArgument, "%s: tag is %d, expected 0 or more%s", OpName(buffer.kind),
                 tag, receive ? ", or OCCL_ANY_TAG" : "");
  }
  OCCL_RETURN_IF_ERROR(
      CheckBuffer(comm, receive ? "recvbuff" : "sendbuff", data, count, 1, buffer, &spec->data));
  spec->count = count;
  spec->datatype = datatype;
  spec->element_bytes = buffer.element_bytes;
  spec->peer = peer;
  spec->tag = tag;
  return Status();
}

}  // namespace occl
