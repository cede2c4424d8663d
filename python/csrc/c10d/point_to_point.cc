// send, recv, recv from any source.
#include <c10/util/Exception.h>

#include "python/csrc/c10d/process_group.h"

namespace torch_openreg {

using c10d::OpType;

namespace {

void check_tag(const Call& call, int tag) {
  TORCH_CHECK_VALUE(tag >= 0, call.prefix(), "expected a tag of at least 0, got ", tag);
}

}  // namespace

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::send(Tensors& tensors, int destination, int tag) {
  const auto group = identity();
  Call call(OpType::SEND, "send", *group, /*asynchronous=*/true, c10d::kUnsetTimeout);
  call.check_single(tensors, "tensor");
  call.check_rank(destination, "destination");
  check_tag(call, tag);
  call.point_to_point = PointToPointKey{destination, tag, /*receives=*/false};
  call.show(tensors, {});
  const void* const data = call.input(tensors[0]);
  call.wire = call.moved();
  const std::size_t count = call.units(tensors[0]);
  return run(call, [data, count, destination, tag, type = call.wire.type](const Target& to) {
    return occlSend(data, count, type, destination, tag, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::receive(Tensors& tensors, int source, int tag,
                                                    OpType type) {
  const auto group = identity();
  Call call(type, "recv", *group, /*asynchronous=*/true, c10d::kUnsetTimeout);
  call.check_single(tensors, "tensor");
  if (type == OpType::RECV) {
    call.check_rank(source, "source");
  }
  check_tag(call, tag);
  call.point_to_point = PointToPointKey{source, tag, /*receives=*/true};
  call.show({}, tensors);
  void* const data = call.output(tensors[0]);
  call.wire = call.moved();
  const std::size_t count = call.units(tensors[0]);
  return run(call, [data, count, source, tag, wire = call.wire.type](const Target& to) {
    return occlRecv(data, count, wire, source, tag, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::recv(Tensors& tensors, int source, int tag) {
  return receive(tensors, source, tag, OpType::RECV);
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, OCCL_ANY_SOURCE, tag, OpType::RECVANYSOURCE);
}

}  // namespace torch_openreg
