// One OCCL communicator of a process group, on one device, with the streams that belong to it.
#ifndef PYTHON_CSRC_C10D_COMMUNICATOR_H_
#define PYTHON_CSRC_C10D_COMMUNICATOR_H_

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "occl/api/occl.h"
#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/failure_report.h"
#include "python/csrc/c10d/lookout.h"
#include "python/csrc/c10d/message_streams.h"
#include "python/csrc/c10d/store_adapter.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Not thread-safe unless a method says so: ProcessGroupOCCL issues under its lock.
class Communicator final : public c10::intrusive_ptr_target {
 public:
  struct Settings {
    c10::DeviceIndex device = 0;
    std::chrono::milliseconds timeout{0};
    bool high_priority = false;
    std::shared_ptr<FailureReports> reports;  // of the group
    Announcement own;                         // where waits for other ranks are told
  };

  // Waits for no other rank: send and receive need their two ranks only. Without the interpreter
  // lock. Throws DistBackendError, or what the store threw. `peers` says where to find out that a
  // rank has died before it came.
  static c10::intrusive_ptr<Communicator> join(std::unique_ptr<StoreAdapter> meeting,
                                               const Occasion& occasion, const Settings& settings,
                                               std::vector<Announcement> peers,
                                               std::chrono::steady_clock::time_point deadline);
  // Takes over `comm`, whose ranks meet in `meeting` (nullptr: they have met). `peers` as in join.
  Communicator(occlComm_t comm, const Settings& settings, std::unique_ptr<StoreAdapter> meeting,
               std::vector<Announcement> peers = {});
  // Destroys without waiting for anybody.
  ~Communicator() override;

  // nullptr once destroyed. Thread-safe.
  occlComm_t handle() const;
  c10::DeviceIndex device() const { return settings_.device; }

  // Unless all_joined(). Blocks until all ranks of the group have joined, at most until `deadline`,
  // without the interpreter lock; Ctrl-C ends it. Throws DistBackendError (it names the ranks that
  // did not come), or what the store threw.
  void await_ranks(const Occasion& occasion, std::chrono::steady_clock::time_point deadline);
  // Whether that has been so, once. Thread-safe.
  bool all_joined() const { return all_joined_.load(std::memory_order_acquire); }

  // The ranks of `size` that have not joined, as far as is known. Thread-safe.
  std::vector<int> absent(int size) const;
  // As all_joined, or they have left: as of now. Thread-safe, does not block.
  bool nobody_is_missing() const;
  // Where in the group's store the ranks meet; "" where they have met.
  const std::string& meeting_place() const { return meeting_place_; }

  // Where asynchronous collectives run.
  const OpenregStream& stream() const { return stream_; }
  // Where sends and receives run.
  MessageStreams& message_streams() { return message_streams_; }

  // Sees to it that messages to and from the ranks of `keys` fail when those end, also before they
  // join. Without the interpreter lock.
  void look_for(c10::ArrayRef<PointToPointKey> keys, const GroupIdentity& group);

  // OCCL's operation for PREMUL_SUM with the factor of `op`. Kept for the communicator's life.
  occlRedOp_t premul_sum(const c10d::ReduceOp& op, c10::ScalarType dtype);

  // Thread-safe; do not block on peers. Both do nothing once destroyed.
  void abort(const std::string& reason);
  // The same, because the user ends it: what streams hold of a failure that was told is forgotten.
  void abort_for_user(const std::string& reason);
  void set_timeout(std::chrono::milliseconds timeout);
  // occlSuccess while it is good. Thread-safe.
  occlResult_t async_error() const;
  // What it has failed with; "" while it is good. Thread-safe.
  std::string failure() const;
  // The same, or "" while it is destroyed.
  std::string failure_unless_busy() const;

  // As log_failure, with what every rank did last; the group's first failure only. Thread-safe;
  // never waits for a lock.
  void report_first_failure(const GroupIdentity& group, const std::string& message) noexcept;
  // The same for what a call has ended with; nothing while the communicator is good.
  void report_if_failed(const GroupIdentity& group, occlResult_t result,
                        const std::string& message) noexcept;
  // Whether or not it is the first.
  void log_failure(const GroupIdentity& group, const std::string& message) noexcept;

  // What this pending operation waits for: "waiting for rank(s) 1 (pid 7) whose last operation is
  // ..."; "" if it is complete or the library does not tell. Thread-safe; does not block on peers.
  std::string tell_wait(occlRequest_t request) const;

  // Pending operations are aborted; peers that need them get an error. Thread-safe.
  void destroy();

  // Whose failures its operations leave on streams. Thread-safe.
  const FailureOwnerPtr& failures() const { return failures_; }
  // A call throws because the communicator has failed, if it has. Thread-safe.
  void tell_if_failed() const;

 private:
  struct PremulSum {
    c10::ScalarType dtype;
    double real, imaginary;
    occlRedOp_t operation;
  };

  // comm_, but nullptr in a forked child: it is the parent's. With mutex_ held.
  occlComm_t comm() const { return in_bad_fork() ? nullptr : comm_; }

  const Settings settings_;
  const FailureOwnerPtr failures_ = std::make_shared<FailureOwner>();
  const std::string meeting_place_;
  std::unique_ptr<StoreAdapter> meeting_;  // nullptr once all ranks have joined
  std::vector<Announcement> peers_;        // empty once all ranks have joined
  std::vector<bool> looked_for_;           // by rank
  std::unique_ptr<Lookout> lookout_;
  const OpenregStream stream_;
  MessageStreams message_streams_;
  std::vector<PremulSum> premul_sums_;

  std::atomic<bool> all_joined_;
  mutable std::mutex mutex_;  // guards comm_
  occlComm_t comm_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_COMMUNICATOR_H_
