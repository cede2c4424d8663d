// The operations of one group on one stream: a state machine that advances each on its own, so that
// a matched pair completes though another is unmatched.
#ifndef OCCL_CORE_GROUP_OP_H_
#define OCCL_CORE_GROUP_OP_H_

#include <vector>

#include "occl/core/op.h"

namespace occl {

class GroupOp final : public Op {
 public:
  explicit GroupOp(std::vector<Ref<CommOp>> members);

  StepResult Advance() override;
  void CheckWait() override;
  StepResult Sleep(int64_t max_ns) override;
  const char* name() const override { return OpName(OpKind::kGroup); }
  bool PeersAtWork() const override;
  bool crowded() const override { return crowded_; }
  int64_t RemainingNs() const override;
  void Abandon(const Status& status) override;
  void SetInline(bool on_caller) override;

 private:
  std::vector<Ref<CommOp>> running_;
  bool crowded_ = false;
  bool one_comm_ = true;
};

}  // namespace occl

#endif  // OCCL_CORE_GROUP_OP_H_
