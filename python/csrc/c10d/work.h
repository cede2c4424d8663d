// WorkOCCL: one operation that was issued, or a batch of them.
#ifndef PYTHON_CSRC_C10D_WORK_H_
#define PYTHON_CSRC_C10D_WORK_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "occl/api/occl.h"
#include "python/csrc/c10d/backlog.h"
#include "python/csrc/c10d/communicator.h"
#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/watcher.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Semantics are ProcessGroupNCCL's:
//   wait()          makes the current stream wait and returns; a barrier blocks the host
//   wait(timeout)   blocks the host; DistBackendError at expiry (the operation goes on)
//   synchronize()   as wait() without blocking
//   getFuture()     complete at once in the order of its streams; holds the list of outputs
// A failure that is known is thrown by every one of them; one that comes later, while the stream
// waits, is raised by the next synchronise or query of that stream (unless the user has ended the
// group by then, having been told: async_failures.h), and by the next operation of the group.
// Thread-safe.
//
// The tensors are held until the operation is done on its stream, whether or not anybody keeps the
// Work, and are never dropped on a stream's worker.
class WorkOCCL final : public c10d::Work {
 public:
  struct Description {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = nullptr;  // static storage
    std::uint64_t sequence = 0;
    bool blocks_host = false;         // a barrier
    int source = -1;                  // of a receive whose sender is known
    const char* profiling = nullptr;  // static storage, if somebody profiles
    std::uint64_t record = 0;         // of the flight recorder
  };

  WorkOCCL(const Description& description, std::shared_ptr<const GroupIdentity> group,
           c10::intrusive_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher,
           const OpenregStream& stream, std::vector<at::Tensor> tensors, std::size_t results);
  ~WorkOCCL() override;
  // When the last owner is gone: somebody may still know this Work weakly, and must not keep the
  // tensors or the communicator with that.
  void release_resources() override;

  // ---- for ProcessGroupOCCL, in this order
  void add_request(occlRequest_t request) { requests_.push_back(request); }
  // The outputs that were staged: contents are copied to `first` from `second`, on the stream.
  using CopyBacks = c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1>;
  // Called once all is queued: ends here if the operation is already done, otherwise arranges that
  // the end is noticed on the stream. Throws nothing that belongs to the operation.
  void issued(CopyBacks copy_backs);

  // True once done, successfully or not. Does not block.
  bool poll() const;
  // Blocks the host, without the interpreter lock, until done or `deadline`; false at the deadline.
  bool wait_on_host(std::chrono::steady_clock::time_point deadline);

  // "all_reduce #3 on rank 0 of 2 in group '0', waiting for rank(s) 1 (pid 4711) whose last ..."
  std::string tell_pending() const;

  std::chrono::nanoseconds started() const { return std::chrono::nanoseconds(start_ns_); }
  std::chrono::nanoseconds ended() const { return std::chrono::nanoseconds(end_ns_); }

  // ---- c10d::Work
  bool isCompleted() override { return poll(); }
  bool isSuccess() const override { return poll() && result_ == occlSuccess; }
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds of data movement; throws before completion.
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return description_.sequence; }

 private:
  friend class FinishTask;
  friend class CheckTask;

  const occlRequest_t* first_pending() const;  // end() if all are done
  bool requests_done() const;
  std::string tell_wait() const;  // ", waiting for ..."; "" if nothing is known
  void finish_locked() const;
  void finish_on_stream();
  void throw_if_failed() const;          // on a stream's worker
  void throw_to_user_if_failed() const;  // where the failure is then told
  void drop_inputs();
  std::string message() const;
  void report_failure() const;
  FailureOwnerPtr failures() const;  // of a task that is queued now

  const Description description_;
  const std::shared_ptr<const GroupIdentity> group_;
  c10::intrusive_ptr<Communicator> communicator_;  // constant while there is an owner
  const std::shared_ptr<Watcher> watcher_;
  const OpenregStream stream_;
  const std::size_t results_;  // the first tensors_ are the outputs

  c10::SmallVector<occlRequest_t, 1> requests_;  // constant once issued
  std::atomic<bool> issued_{false};
  orEvent_t end_event_ = nullptr;  // constant once issued; nullptr if done by then

  // Written under mutex_ before finished_ is set, constant afterwards.
  mutable std::atomic<bool> finished_{false};
  mutable occlResult_t result_ = occlInProgress;
  mutable std::string detail_;
  mutable std::int64_t start_ns_ = 0;
  mutable std::int64_t end_ns_ = 0;
  mutable int source_;

  // Guarded by mutex_.
  bool copies_back_ = false;
  std::vector<at::Tensor> tensors_;
  mutable BacklogShare share_{tensors_};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> future_result_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_WORK_H_
