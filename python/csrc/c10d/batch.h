// What was issued since startCoalescing.
#ifndef PYTHON_CSRC_C10D_BATCH_H_
#define PYTHON_CSRC_C10D_BATCH_H_

#include <c10/util/Exception.h>

#include <mutex>
#include <utility>
#include <vector>

#include "python/csrc/c10d/process_group.h"

namespace torch_openreg {

// What the calls of a batch return: it becomes the batch's Work when the batch ends.
class BatchWork final : public c10d::Work {
 public:
  BatchWork() : Work(-1, c10d::OpType::COALESCED) {}

  void bind(c10::intrusive_ptr<c10d::Work> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
  }

  bool isCompleted() override {
    const auto work = bound();
    return work && work->isCompleted();
  }
  bool isSuccess() const override {
    const auto work = bound();
    return work && work->isSuccess();
  }
  std::exception_ptr exception() const override {
    const auto work = bound();
    return work ? work->exception() : nullptr;
  }
  int sourceRank() const override { return ended()->sourceRank(); }
  std::vector<at::Tensor> result() override { return ended()->result(); }
  void synchronize() override { ended()->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override { return ended()->wait(timeout); }
  void blockCurrentStream() override { ended()->blockCurrentStream(); }
  void abort() override { ended()->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return ended()->getFuture(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return ended()->getFutureResult();
  }
  float getDuration() const override { return ended()->getDuration(); }
  std::uint64_t getSequencenumber() const override { return ended()->getSequencenumber(); }

 private:
  c10::intrusive_ptr<c10d::Work> bound() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return work_;
  }
  c10::intrusive_ptr<c10d::Work> ended() const {
    auto work = bound();
    TORCH_CHECK(work, "OCCL: this operation belongs to a batch that has not been ended");
    return work;
  }

  c10::intrusive_ptr<c10d::Work> work_;
};

struct ProcessGroupOCCL::Batch {
  c10::DeviceIndex device = -1;
  bool point_to_point = true;  // nothing else so far
  bool asynchronous = false;
  std::vector<PointToPointKey> keys;
  std::vector<at::Tensor> inputs, outputs;  // shown
  std::vector<at::Tensor> results, kept;
  WorkOCCL::CopyBacks copy_backs;
  std::vector<Issue> issues;
  c10::intrusive_ptr<BatchWork> placeholder = c10::make_intrusive<BatchWork>();
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_BATCH_H_
