// startCoalescing and endCoalescing.
#include "python/csrc/c10d/batch.h"

#include <c10/util/Exception.h>

#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/log.h"

namespace torch_openreg {

void ProcessGroupOCCL::startCoalescing() {
  if (batch_ != nullptr) {
    log_line(Severity::kWarning, static_cast<std::int64_t>(identity()->global_rank()),
             c10::str("OCCL: a batch of ", batch_->issues.size(), " operations in group '",
                      identity()->name,
                      "' was never ended (an exception inside the batch?); they are dropped"));
  }
  batch_ = std::make_unique<Batch>();
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::add_to_batch(Call& call, std::vector<Issue> issues) {
  Batch& batch = *batch_;
  if (batch.device < 0) {
    batch.device = call.device();
  }
  TORCH_CHECK_VALUE(batch.device == call.device(), call.prefix(),
                    "a batch must stay on one device (index ", static_cast<int>(batch.device),
                    "), got index ", static_cast<int>(call.device()));
  batch.point_to_point = batch.point_to_point && call.point_to_point.has_value();
  if (call.point_to_point) {
    batch.keys.push_back(*call.point_to_point);
  }
  batch.asynchronous = batch.asynchronous || call.asynchronous;
  batch.inputs.insert(batch.inputs.end(), call.shown_inputs.begin(), call.shown_inputs.end());
  batch.outputs.insert(batch.outputs.end(), call.shown_outputs.begin(), call.shown_outputs.end());
  batch.results.insert(batch.results.end(), call.results.begin(), call.results.end());
  batch.kept.insert(batch.kept.end(), call.kept.begin(), call.kept.end());
  batch.copy_backs.append(call.copy_backs.begin(), call.copy_backs.end());
  batch.issues.insert(batch.issues.end(), std::make_move_iterator(issues.begin()),
                      std::make_move_iterator(issues.end()));
  return batch.placeholder;
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::endCoalescing() {
  TORCH_CHECK(batch_ != nullptr, "OCCL: endCoalescing without startCoalescing");
  const std::unique_ptr<Batch> batch = std::move(batch_);
  const std::shared_ptr<const GroupIdentity> group = identity();
  Call call(c10d::OpType::COALESCED, "coalesced", *group, batch->asynchronous, c10d::kUnsetTimeout);
  if (batch->issues.empty()) {
    const c10::DeviceIndex device = current_device();
    auto work = c10::make_intrusive<WorkOCCL>(
        WorkOCCL::Description{.type = call.type, .name = call.name}, group, nullptr, watcher_,
        current_stream(device), std::vector<at::Tensor>(), 0);
    work->issued({});
    batch->placeholder->bind(work);
    return work;
  }
  call.set_device(batch->device);
  call.show(batch->inputs, batch->outputs);
  call.results = std::move(batch->results);
  call.kept = std::move(batch->kept);
  call.copy_backs = std::move(batch->copy_backs);
  // A batch of sends and receives only is ordered by those; any collective puts it among them.
  Launch launch = begin(call, batch->point_to_point ? c10::ArrayRef<PointToPointKey>(batch->keys)
                                                    : c10::ArrayRef<PointToPointKey>());
  WorkPtr work = issue_group(launch, call, batch->issues);
  batch->placeholder->bind(work);
  return work;
}

}  // namespace torch_openreg
