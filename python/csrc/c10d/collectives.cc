// Collectives of one tensor in and one tensor out per rank.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "python/csrc/c10d/process_group.h"

namespace torch_openreg {

using c10d::OpType;

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  if (tensors.size() != 1) [[unlikely]] {
    return all_reduce_many(tensors, opts, "all_reduce");
  }
  const auto group = identity();
  Call call(OpType::ALLREDUCE, "all_reduce", *group, opts.asyncOp, opts.timeout);
  call.show(tensors, tensors);
  void* const data = call.in_place(tensors[0]);
  call.wire = call.reduced(opts.reduceOp);
  const std::size_t count = call.units(tensors[0]);
  const occlRedOp_t op = reduction(call, opts.reduceOp);
  return run(call, [data, count, op, type = call.wire.type](const Target& to) {
    return occlAllReduce(data, data, count, type, op, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::all_reduce_many(Tensors& tensors,
                                                            const c10d::AllreduceOptions& opts,
                                                            const char* name) {
  const auto group = identity();
  Call call(OpType::ALLREDUCE_COALESCED, name, *group, opts.asyncOp, opts.timeout);
  TORCH_CHECK_VALUE(!tensors.empty(), call.prefix(), "expected a non-empty list of tensors");
  call.show(tensors, tensors);
  std::vector<Issue> issues;
  for (const at::Tensor& tensor : tensors) {
    call.next_dtype();
    void* const data = call.in_place(tensor);
    call.wire = call.reduced(opts.reduceOp);
    const std::size_t count = call.units(tensor);
    const occlRedOp_t op = reduction(call, opts.reduceOp);
    issues.emplace_back([data, count, op, type = call.wire.type](const Target& to) {
      return occlAllReduce(data, data, count, type, op, to.comm, to.stream, to.options);
    });
  }
  return run_many(call, std::move(issues));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return all_reduce_many(tensors, opts, "allreduce_coalesced");
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& /*opts*/) {
  const auto group = identity();
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "OCCL all_reduce of ", tensors.size(), " sparse tensor(s) on ", group->to_string(),
      ": openreg has no sparse tensors; make the gradient dense, or reduce it on a group with "
      "gloo");
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  const auto group = identity();
  Call call(OpType::BROADCAST, "broadcast", *group, opts.asyncOp, opts.timeout);
  call.check_single(tensors, "tensor");
  call.check_rank(opts.rootRank, "root");
  TORCH_CHECK_VALUE(opts.rootTensor == 0, call.prefix(), "expected root tensor 0, got ",
                    opts.rootTensor);
  call.show(tensors, tensors);
  const int root = static_cast<int>(opts.rootRank);
  void* data = nullptr;
  if (root == rank_) {
    data = const_cast<void*>(call.input(tensors[0]));
    call.results.push_back(tensors[0]);
  } else {
    data = call.output(tensors[0]);
  }
  call.wire = call.moved();
  const std::size_t count = call.units(tensors[0]);
  return run(call, [data, count, root, type = call.wire.type](const Target& to) {
    return occlBroadcast(data, data, count, type, root, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& opts) {
  const auto group = identity();
  Call call(OpType::REDUCE, "reduce", *group, opts.asyncOp, opts.timeout);
  call.check_single(tensors, "tensor");
  call.check_rank(opts.rootRank, "root");
  TORCH_CHECK_VALUE(opts.rootTensor == 0, call.prefix(), "expected root tensor 0, got ",
                    opts.rootTensor);
  call.show(tensors, tensors);
  const int root = static_cast<int>(opts.rootRank);
  const void* data = nullptr;
  void* result = nullptr;
  if (root == rank_) {
    data = result = call.in_place(tensors[0]);
  } else {
    data = call.input(tensors[0]);
    call.results.push_back(tensors[0]);
  }
  call.wire = call.reduced(opts.reduceOp);
  const std::size_t count = call.units(tensors[0]);
  const occlRedOp_t op = reduction(call, opts.reduceOp);
  return run(call, [data, result, count, op, root, type = call.wire.type](const Target& to) {
    return occlReduce(data, result, count, type, op, root, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  const auto group = identity();
  Call call(OpType::_ALLGATHER_BASE, "_all_gather_base", *group, opts.asyncOp, opts.timeout);
  call.show(input, output);
  void* const received = call.output(output);
  const void* const sent = call.input(input);
  call.check_size(static_cast<std::size_t>(output.numel()),
                  static_cast<std::size_t>(input.numel() * size_),
                  "output elements (input elements times ranks)");
  call.wire = call.moved();
  const std::size_t count = call.units(input);
  return run(call, [sent, received, count, type = call.wire.type](const Target& to) {
    return occlAllGather(sent, received, count, type, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const auto group = identity();
  Call call(OpType::COALESCED, "all_gather_into_tensor_coalesced", *group, opts.asyncOp,
            opts.timeout);
  TORCH_CHECK_VALUE(!inputs.empty(), call.prefix(), "expected a non-empty list of tensors");
  call.check_size(outputs.size(), inputs.size(), "outputs (as many as inputs)");
  call.show(inputs, outputs);
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.next_dtype();
    void* const received = call.output(outputs[i]);
    const void* const sent = call.input(inputs[i]);
    call.check_size(static_cast<std::size_t>(outputs[i].numel()),
                    static_cast<std::size_t>(inputs[i].numel() * size_),
                    "output elements (input elements times ranks)");
    call.wire = call.moved();
    const std::size_t count = call.units(inputs[i]);
    issues.emplace_back([sent, received, count, type = call.wire.type](const Target& to) {
      return occlAllGather(sent, received, count, type, to.comm, to.stream, to.options);
    });
  }
  return run_many(call, std::move(issues));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", *group, opts.asyncOp,
            opts.timeout);
  call.show(input, output);
  void* const received = call.output(output);
  const void* const sent = call.input(input);
  call.check_size(static_cast<std::size_t>(input.numel()),
                  static_cast<std::size_t>(output.numel() * size_),
                  "input elements (output elements times ranks)");
  call.wire = call.reduced(opts.reduceOp);
  const std::size_t count = call.units(output);
  const occlRedOp_t op = reduction(call, opts.reduceOp);
  return run(call, [sent, received, count, op, type = call.wire.type](const Target& to) {
    return occlReduceScatter(sent, received, count, type, op, to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter_tensor_coalesced", *group,
            opts.asyncOp, opts.timeout);
  TORCH_CHECK_VALUE(!inputs.empty(), call.prefix(), "expected a non-empty list of tensors");
  call.check_size(outputs.size(), inputs.size(), "outputs (as many as inputs)");
  call.show(inputs, outputs);
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.next_dtype();
    void* const received = call.output(outputs[i]);
    const void* const sent = call.input(inputs[i]);
    call.check_size(static_cast<std::size_t>(inputs[i].numel()),
                    static_cast<std::size_t>(outputs[i].numel() * size_),
                    "input elements (output elements times ranks)");
    call.wire = call.reduced(opts.reduceOp);
    const std::size_t count = call.units(outputs[i]);
    const occlRedOp_t op = reduction(call, opts.reduceOp);
    issues.emplace_back([sent, received, count, op, type = call.wire.type](const Target& to) {
      return occlReduceScatter(sent, received, count, type, op, to.comm, to.stream, to.options);
    });
  }
  return run_many(call, std::move(issues));
}

}  // namespace torch_openreg
