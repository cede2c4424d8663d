// Collectives of one tensor in and one tensor out per rank.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "python/csrc/c10d/process_group.h"

namespace torch_openreg {

using c10d::OpType;

namespace {

// Each checks the tensors of one operation and returns what issues it to a Target: for the form of
// one operation and for those of several. `reduction()` gives OCCL's operation for the tensors that
// the call has seen.
template <typename Reduction>
auto prepare_all_reduce(Call& call, const at::Tensor& tensor, const c10d::ReduceOp& reduce_op,
                        Reduction&& reduction) {
  void* const data = call.in_place(tensor);
  call.wire = call.reduced(reduce_op);
  const std::size_t count = call.units(tensor);
  const occlRedOp_t op = reduction();
  return [data, count, op, type = call.wire.type](const auto& to) {
    return occlAllReduce(data, data, count, type, op, to.comm, to.stream, to.options);
  };
}

auto prepare_all_gather(Call& call, const at::Tensor& output, const at::Tensor& input) {
  void* const received = call.output(output);
  const void* const sent = call.input(input);
  call.check_size(static_cast<std::size_t>(output.numel()),
                  static_cast<std::size_t>(input.numel() * call.group.size),
                  "output elements (input elements times ranks)");
  call.wire = call.moved();
  const std::size_t count = call.units(input);
  return [sent, received, count, type = call.wire.type](const auto& to) {
    return occlAllGather(sent, received, count, type, to.comm, to.stream, to.options);
  };
}

template <typename Reduction>
auto prepare_reduce_scatter(Call& call, const at::Tensor& output, const at::Tensor& input,
                            const c10d::ReduceOp& reduce_op, Reduction&& reduction) {
  void* const received = call.output(output);
  const void* const sent = call.input(input);
  call.check_size(static_cast<std::size_t>(input.numel()),
                  static_cast<std::size_t>(output.numel() * call.group.size),
                  "input elements (output elements times ranks)");
  call.wire = call.reduced(reduce_op);
  const std::size_t count = call.units(output);
  const occlRedOp_t op = reduction();
  return [sent, received, count, op, type = call.wire.type](const auto& to) {
    return occlReduceScatter(sent, received, count, type, op, to.comm, to.stream, to.options);
  };
}

void check_pairs(const Call& call, c10::ArrayRef<at::Tensor> outputs,
                 c10::ArrayRef<at::Tensor> inputs) {
  TORCH_CHECK_VALUE(!inputs.empty(), call.prefix(), "expected a non-empty list of tensors");
  call.check_size(outputs.size(), inputs.size(), "outputs (as many as inputs)");
}

}  // namespace

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  if (tensors.size() != 1) [[unlikely]] {
    return all_reduce_many(tensors, opts, "all_reduce");
  }
  const auto group = identity();
  Call call(OpType::ALLREDUCE, "all_reduce", *group, opts.asyncOp, opts.timeout);
  call.show(tensors, tensors);
  return run(call, prepare_all_reduce(call, tensors[0], opts.reduceOp,
                                      [&] { return reduction(call, opts.reduceOp); }));
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
    issues.emplace_back(prepare_all_reduce(call, tensor, opts.reduceOp,
                                           [&] { return reduction(call, opts.reduceOp); }));
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
      ": OCCL reduces dense tensors only; make the gradient dense, or reduce it on a group with "
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
  return run(call, prepare_all_gather(call, output, input));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const auto group = identity();
  Call call(OpType::COALESCED, "all_gather_into_tensor_coalesced", *group, opts.asyncOp,
            opts.timeout);
  check_pairs(call, outputs, inputs);
  call.show(inputs, outputs);
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.next_dtype();
    issues.emplace_back(prepare_all_gather(call, outputs[i], inputs[i]));
  }
  return run_many(call, std::move(issues));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", *group, opts.asyncOp,
            opts.timeout);
  call.show(input, output);
  return run(call, prepare_reduce_scatter(call, output, input, opts.reduceOp,
                                          [&] { return reduction(call, opts.reduceOp); }));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter_tensor_coalesced", *group,
            opts.asyncOp, opts.timeout);
  check_pairs(call, outputs, inputs);
  call.show(inputs, outputs);
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.next_dtype();
    issues.emplace_back(prepare_reduce_scatter(call, outputs[i], inputs[i], opts.reduceOp,
                                               [&] { return reduction(call, opts.reduceOp); }));
  }
  return run_many(call, std::move(issues));
}

}  // namespace torch_openreg
