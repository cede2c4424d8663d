#include "occl/core/group_op.h"

#include <algorithm>

namespace occl {

GroupOp::GroupOp(std::vector<Ref<CommOp>> members) : running_(std::move(members)) {
  for (const Ref<CommOp>& op : running_) {
    crowded_ = crowded_ || op->crowded();
    one_comm_ = one_comm_ && op->SameComm(*running_[0]);
  }
}

StepResult GroupOp::Advance() {
  bool moved = false;
  std::erase_if(running_, [&](const Ref<CommOp>& op) {
    const StepResult result = op->Advance();
    moved = moved || result != StepResult::kWaiting;
    return result == StepResult::kDone;
  });
  if (running_.empty()) return StepResult::kDone;
  return moved ? StepResult::kMoved : StepResult::kWaiting;
}

bool GroupOp::PeersAtWork() const {
  const auto at_work = [](const Ref<CommOp>& op) { return op->PeersAtWork(); };
  return std::all_of(running_.begin(), running_.end(), at_work);
}

void GroupOp::CheckWait() {
  for (const Ref<CommOp>& op : running_) op->CheckWait();
}

// A thread can sleep on one bell. With several communicators it looks at the others often.
StepResult GroupOp::Sleep(int64_t max_ns) {
  constexpr int64_t kShort_ns = 200'000;
  const StepResult result = Advance();
  if (result != StepResult::kWaiting) return result;
  const auto tell_sleepers = [this] {
    for (const Ref<CommOp>& op : running_) op->TellSleepers();
  };
  tell_sleepers();
  const Ref<CommOp> first = running_[0];
  const CommOp::Announcement announcement = first->Announce();
  const StepResult again = Advance();
  if (again == StepResult::kWaiting) {
    tell_sleepers();
    announcement.Sleep(one_comm_ ? max_ns : std::min(max_ns, kShort_ns));
  }
  return again;
}

int64_t GroupOp::RemainingNs() const {
  int64_t remaining_ns = INT64_MAX;
  for (const Ref<CommOp>& op : running_) remaining_ns = std::min(remaining_ns, op->RemainingNs());
  return remaining_ns;
}

void GroupOp::SetInline(bool on_caller) {
  for (const Ref<CommOp>& op : running_) op->SetInline(on_caller);
}

void GroupOp::Abandon(const Status& status) {
  for (const Ref<CommOp>& op : running_) op->Abandon(status);
  running_.clear();
}

}  // namespace occl
