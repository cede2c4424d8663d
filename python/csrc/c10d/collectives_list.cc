// Collectives with a tensor for each rank. OCCL takes an address per rank, so nothing is flattened.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "python/csrc/c10d/process_group.h"

namespace torch_openreg {
namespace {

using c10d::OpType;

// Addresses and counts per rank, owned by the call that uses them.
struct Parts {
  std::vector<void*> addresses;
  std::vector<std::size_t> counts;

  void* const* data() const { return addresses.data(); }
  const void* const* const_data() const { return addresses.data(); }
};

Parts outputs_of(Call& call, const std::vector<at::Tensor>& tensors) {
  Parts parts;
  for (const at::Tensor& tensor : tensors) {
    parts.addresses.push_back(call.output(tensor));
    parts.counts.push_back(static_cast<std::size_t>(tensor.numel()));
  }
  return parts;
}

Parts inputs_of(Call& call, const std::vector<at::Tensor>& tensors) {
  Parts parts;
  for (const at::Tensor& tensor : tensors) {
    parts.addresses.push_back(const_cast<void*>(call.input(tensor)));
    parts.counts.push_back(static_cast<std::size_t>(tensor.numel()));
  }
  return parts;
}

void to_units(std::vector<std::size_t>* counts, const WireType& wire) {
  for (std::size_t& count : *counts) {
    count *= wire.units;
  }
}

// Checks the tensors of one all-gather and returns what issues it to a Target.
auto prepare_all_gather(Call& call, const std::vector<at::Tensor>& outputs,
                        const at::Tensor& input) {
  Parts parts = outputs_of(call, outputs);
  const void* const sent = call.input(input);
  call.check_size(static_cast<std::size_t>(input.numel()),
                  parts.counts[static_cast<std::size_t>(call.group.rank)],
                  "input elements (as many as this rank's output has)");
  call.wire = call.moved();
  to_units(&parts.counts, call.wire);
  return [sent, parts = std::move(parts), type = call.wire.type](const auto& to) {
    return occlAllGatherv(sent, parts.data(), parts.counts.data(), type, to.comm, to.stream,
                          to.options);
  };
}

}  // namespace

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const auto group = identity();
  Call call(OpType::ALLGATHER, "all_gather", *group, opts.asyncOp, opts.timeout);
  call.check_single(inputs, "input");
  call.check_size(outputs.size(), 1, "list of outputs");
  call.check_size(outputs[0].size(), static_cast<std::size_t>(size_), "outputs (one per rank)");
  call.show(inputs, outputs[0]);
  return run(call, prepare_all_gather(call, outputs[0], inputs[0]));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  // outputs[rank][i] takes inputs[i] of that rank.
  const auto group = identity();
  Call call(OpType::ALLGATHER_COALESCED, "ALLGATHER_coalesced", *group, opts.asyncOp, opts.timeout);
  TORCH_CHECK_VALUE(!inputs.empty(), call.prefix(), "expected a non-empty list of tensors");
  call.check_size(outputs.size(), static_cast<std::size_t>(size_), "output lists (one per rank)");
  for (const auto& list : outputs) {
    call.check_size(list.size(), inputs.size(), "outputs in each list (as many as inputs)");
  }
  call.show(inputs, outputs[0]);
  std::vector<Issue> issues;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.next_dtype();
    Tensors received;
    for (const auto& list : outputs) {
      received.push_back(list[i]);
    }
    issues.emplace_back(prepare_all_gather(call, received, inputs[i]));
  }
  return run_many(call, std::move(issues));
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  const auto group = identity();
  Call call(OpType::GATHER, "gather", *group, opts.asyncOp, opts.timeout);
  call.check_rank(opts.rootRank, "root");
  call.check_single(inputs, "input");
  const int root = static_cast<int>(opts.rootRank);
  Parts parts;
  if (root == rank_) {
    call.check_size(outputs.size(), 1, "list of outputs");
    call.check_size(outputs[0].size(), static_cast<std::size_t>(size_), "outputs (one per rank)");
    call.show(inputs, outputs[0]);
    parts = outputs_of(call, outputs[0]);
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), call.prefix(), "only the root (rank ",
                      root, ") gives outputs");
    call.show(inputs, {});
  }
  const void* const sent = call.input(inputs[0]);
  call.wire = call.moved();
  const std::size_t count = call.units(inputs[0]);
  to_units(&parts.counts, call.wire);
  if (root == rank_) {
    call.check_size(count, parts.counts[static_cast<std::size_t>(rank_)],
                    "input elements (as many as the root's own output has)");
  }
  return run(
      call, [sent, count, parts = std::move(parts), root, type = call.wire.type](const Target& to) {
        return occlGatherv(sent, count, parts.data(), parts.counts.data(), type, root, to.comm,
                           to.stream, to.options);
      });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::SCATTER, "scatter", *group, opts.asyncOp, opts.timeout);
  call.check_rank(opts.rootRank, "root");
  call.check_single(outputs, "output");
  const int root = static_cast<int>(opts.rootRank);
  void* const received = call.output(outputs[0]);
  Parts parts;
  if (root == rank_) {
    call.check_size(inputs.size(), 1, "list of inputs");
    call.check_size(inputs[0].size(), static_cast<std::size_t>(size_), "inputs (one per rank)");
    call.show(inputs[0], outputs);
    parts = inputs_of(call, inputs[0]);
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), call.prefix(), "only the root (rank ",
                      root, ") gives inputs");
    call.show({}, outputs);
  }
  call.wire = call.moved();
  const std::size_t count = call.units(outputs[0]);
  to_units(&parts.counts, call.wire);
  if (root == rank_) {
    call.check_size(count, parts.counts[static_cast<std::size_t>(rank_)],
                    "output elements (as many as the root's own input has)");
  }
  return run(call, [received, count, parts = std::move(parts), root,
                    type = call.wire.type](const Target& to) {
    return occlScatterv(parts.const_data(), parts.counts.data(), received, count, type, root,
                        to.comm, to.stream, to.options);
  });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  const auto group = identity();
  Call call(OpType::REDUCE_SCATTER, "reduce_scatter", *group, opts.asyncOp, opts.timeout);
  call.check_single(outputs, "output");
  call.check_size(inputs.size(), 1, "list of inputs");
  call.check_size(inputs[0].size(), static_cast<std::size_t>(size_), "inputs (one per rank)");
  call.show(inputs[0], outputs);
  void* const received = call.output(outputs[0]);
  Parts parts = inputs_of(call, inputs[0]);
  call.check_size(static_cast<std::size_t>(outputs[0].numel()),
                  parts.counts[static_cast<std::size_t>(rank_)],
                  "output elements (as many as this rank's input has)");
  call.wire = call.reduced(opts.reduceOp);
  to_units(&parts.counts, call.wire);
  const occlRedOp_t op = reduction(call, opts.reduceOp);
  return run(call,
             [received, parts = std::move(parts), op, type = call.wire.type](const Target& to) {
               return occlReduceScatterv(parts.const_data(), received, parts.counts.data(), type,
                                         op, to.comm, to.stream, to.options);
             });
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  const auto group = identity();
  Call call(OpType::ALLTOALL, "all_to_all", *group, opts.asyncOp, opts.timeout);
  call.check_size(outputs.size(), static_cast<std::size_t>(size_), "outputs (one per rank)");
  call.check_size(inputs.size(), static_cast<std::size_t>(size_), "inputs (one per rank)");
  call.show(inputs, outputs);
  Parts received = outputs_of(call, outputs);
  Parts sent = inputs_of(call, inputs);
  call.wire = call.moved();
  to_units(&received.counts, call.wire);
  to_units(&sent.counts, call.wire);
  return run(call, [received = std::move(received), sent = std::move(sent),
                    type = call.wire.type](const Target& to) {
    return occlAllToAllv(sent.const_data(), sent.counts.data(), received.data(),
                         received.counts.data(), type, to.comm, to.stream, to.options);
  });
}

namespace {

// The part of a tensor that belongs to each rank: rows of dimension 0, evenly without splits.
Parts split_rows(const Call& call, const at::Tensor& tensor, void* data,
                 const std::vector<std::int64_t>& splits, const WireType& wire, const char* what) {
  const auto ranks = static_cast<std::size_t>(call.group.size);
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> sizes = splits;
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % call.group.size == 0, call.prefix(), "dimension 0 of the ", what,
                      " has size ", rows, ", which is not divisible by the ", ranks,
                      " ranks, and no split sizes are given");
    sizes.assign(ranks, rows / call.group.size);
  } else {
    TORCH_CHECK_VALUE(splits.size() == ranks, call.prefix(), "expected ", ranks, " ", what,
                      " split sizes (one per rank), got ", splits.size());
    const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
    TORCH_CHECK_VALUE(sum == rows, call.prefix(), "the ", what, " split sizes sum up to ", sum,
                      ", but dimension 0 of the ", what, " has size ", rows);
  }
  const std::size_t per_row =
      rows == 0 ? 0 : static_cast<std::size_t>(tensor.numel() / rows) * wire.units;
  const std::size_t row_bytes = per_row * occlDataTypeSize(wire.type);
  Parts parts;
  auto* address = static_cast<std::byte*>(data);
  for (const std::int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, call.prefix(), "a split size of the ", what,
                      " is negative: ", size);
    parts.addresses.push_back(address);
    parts.counts.push_back(static_cast<std::size_t>(size) * per_row);
    address += static_cast<std::size_t>(size) * row_bytes;
  }
  return parts;
}

}  // namespace

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  const auto group = identity();
  Call call(OpType::ALLTOALL_BASE, "all_to_all_single", *group, opts.asyncOp, opts.timeout);
  call.show(input, output);
  call.input_splits = input_splits;
  call.output_splits = output_splits;
  void* const received = call.output(output);
  void* const sent = const_cast<void*>(call.input(input));
  call.wire = call.moved();
  Parts to_receive = split_rows(call, output, received, output_splits, call.wire, "output");
  Parts to_send = split_rows(call, input, sent, input_splits, call.wire, "input");
  return run(call, [to_receive = std::move(to_receive), to_send = std::move(to_send),
                    type = call.wire.type](const Target& to) {
    return occlAllToAllv(to_send.const_data(), to_send.counts.data(), to_receive.data(),
                         to_receive.counts.data(), type, to.comm, to.stream, to.options);
  });
}

}  // namespace torch_openreg
