#include "python/csrc/c10d/profile.h"

#include <ATen/core/ivalue.h>
#include <c10/util/StringUtil.h>

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace torch_openreg {
namespace {

std::int64_t elements(c10::ArrayRef<at::Tensor> tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    sum += tensor.numel();
  }
  return sum;
}

// The group's global ranks as start and stride, -1 where they are no such sequence.
std::pair<int, int> start_and_stride(const GroupIdentity& group) {
  if (group.global_ranks.empty()) {
    return {0, 1};
  }
  const auto& ranks = group.global_ranks;
  const auto start = static_cast<int>(ranks[0]);
  const int stride = ranks.size() > 1 ? static_cast<int>(ranks[1]) - start : 1;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (static_cast<int>(ranks[i]) != start + static_cast<int>(i) * stride) {
      return {-1, -1};
    }
  }
  return {start, stride};
}

}  // namespace

void ProfileScope::open(const Call& call, std::uint64_t sequence) {
  const bool point_to_point = call.point_to_point.has_value();
  const auto name = std::make_tuple(call.group.name, call.group.desc);
  const auto number = std::make_tuple(static_cast<std::int64_t>(sequence), point_to_point);
  const auto [start, stride] = start_and_stride(call.group);
  auto info = std::make_shared<torch::ParamCommsDebugInfo>(
      name, call.group.rank, std::string(call.name), elements(call.shown_inputs),
      elements(call.shown_outputs), call.dtype(), call.input_splits.vec(), call.output_splits.vec(),
      start, stride, call.group.size, call.asynchronous);
  torch::maybeSetSequenceInfo(info, number);
  info_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, info);
  record_.emplace(at::RecordScope::FUNCTION);
  if (!record_->isActive()) {
    return;
  }
  const std::vector<c10::IValue> inputs = {
      c10::IValue(call.shown_inputs.vec()),
      number,
      name,
      call.group.rank,
      std::string(call.name),
      call.input_splits.vec(),
      call.output_splits.vec(),
      start,
      stride,
      call.group.size,
      call.asynchronous,
  };
  if (record_->needsInputs()) {
    record_->before(at::kParamCommsCallName,
                    c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  } else {
    record_->before(at::kParamCommsCallName);
  }
  if (record_->needsOutputs()) {
    record_->setOutputs(std::vector<c10::IValue>{c10::IValue(call.shown_outputs.vec())});
  }
}

const char* profiling_title(const char* operation) {
  if (!is_profiling()) [[likely]] {
    return nullptr;
  }
  static std::mutex mutex;
  static auto* const titles = new std::unordered_map<std::string, std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return titles->emplace(operation, c10::str("occl:", operation)).first->second.c_str();
}

}  // namespace torch_openreg
