// ProcessGroupOCCL: torch.distributed's backend "occl", on top of the OCCL library.
#ifndef PYTHON_CSRC_C10D_PROCESS_GROUP_H_
#define PYTHON_CSRC_C10D_PROCESS_GROUP_H_

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/csrc/c10d/call.h"
#include "python/csrc/c10d/communicator.h"
#include "python/csrc/c10d/compat.h"
#include "python/csrc/c10d/failure_report.h"
#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/c10d/options.h"
#include "python/csrc/c10d/watcher.h"
#include "python/csrc/c10d/work.h"

namespace torch_openreg {

// timedelta.max stands for "no limit" in many programs; deadlines are times of a 64-bit clock in
// ns.
inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24) * 36500;

// Semantics are ProcessGroupNCCL's. Communicators are made at the first use of a device, or by
// eagerConnectSingleDevice; ranks that share a host may all use the same device. Blocking
// collectives (asyncOp == false) run on the current stream, asynchronous ones on a stream of the
// group after what is queued on the current one; point-to-point operations run on streams of their
// own, so that they may be answered in any order. Thread-safe; all ranks issue in one order.
class ProcessGroupOCCL final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ProcessGroupOCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   c10::intrusive_ptr<OptionsOCCL> options);
  // Aborts what is pending and waits for nobody; shutdown() is the orderly end.
  ~ProcessGroupOCCL() override;

  // For the interpreter's exit: shuts down every group that is left, waiting at most `drain` for
  // what is in flight.
  static void shutdown_all(std::chrono::milliseconds drain);

  // Tells of failures of the group's symmetric memory, also when the group is gone (meeting.cc).
  std::function<void(const std::string&)> reporter(FailureReports::Of of);

  // ---- what it is (process_group.cc)
  const std::string getBackendName() const override { return "occl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& pg_uid) override;
  // Numbers start at 0 on every rank and count the group's collectives, so they agree already.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  void abort() override;
  // Waits for what is pending and can still complete, then frees the communicators.
  void shutdown() override;

  // "rank 2 (pid 4711) ended before it came" for one of these ranks whose process has ended; "" if
  // none is known to. Does not block; throws what the store throws. (meeting.cc)
  std::string find_dead(const std::vector<int>& ranks);

  // "... was aborted by rank 1 of 2" once a rank has aborted the group, this one or another; ""
  // otherwise, or if it lives no more. From any thread, also one that must not be the last to hold
  // a group. Asks the store for a moment, where that is allowed.
  enum class Asks { kNobody, kStoreOfTorch, kAnyStore };
  static std::string find_abort(std::uint64_t group_id, Asks asks);
  // Of this process's groups, none has it again.
  std::uint64_t id() const { return id_; }
  // Where the other ranks say who they are.
  std::vector<Announcement> announcements_of_peers();

  // ---- parts of the group (subgroups.cc)
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<Backend> shrink(
      const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags = 0,
      const c10::intrusive_ptr<Options>& opts_override = nullptr) override;

  // ---- collectives (collectives.cc, collectives_list.cc)
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;

  // ---- between two ranks, and barriers (point_to_point.cc, barrier.cc)
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  // Through the store, so it works when communicators do not. Rank 0 names all ranks that did not
  // come, whatever wait_all_ranks is; one that has ended, at once.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // ---- batches (batch.cc)
  // What is issued between start and end goes out together. In a batch each call returns the
  // batch's Work, which may be waited for after the end.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // ---- hooks, timing, memory (process_group.cc)
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  // Times are always taken.
  void enableCollectivesTiming() override {}
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options = {}) override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  std::unordered_map<std::string, std::uint64_t> getMemoryStats() override;

 private:
  // Where a call goes.
  struct Target {
    occlComm_t comm = nullptr;
    orStream_t stream = nullptr;
    const occlCallOptions_t* options = nullptr;
  };
  using Issue = std::function<occlResult_t(const Target&)>;
  struct Batch;
  // A call that holds its place in the order of the group.
  struct Launch;

  std::shared_ptr<const GroupIdentity> identity();
  // Who has to be there: the two ranks of a send and receive, or all of the group.
  enum class Needs { kPeer, kAll };
  using TimePoint = std::chrono::steady_clock::time_point;
  c10::intrusive_ptr<Communicator> communicator(c10::DeviceIndex device, Needs needs,
                                                const Occasion& occasion);
  c10::intrusive_ptr<Communicator> communicator_until(TimePoint deadline, c10::DeviceIndex device,
                                                      Needs needs, const Occasion& occasion);
  c10::intrusive_ptr<Communicator> joined_communicator(TimePoint deadline, c10::DeviceIndex device,
                                                       const Occasion& occasion);
  // Of the communicators that the group's ranks meet for, one a device: the same on all of them.
  std::string meeting_name(int number) const;
  // Until the ranks have met; others ask where this thread is.
  class FirstUse;
  // "all_reduce #1 on rank 0 of 2 in group '0', in another thread: the group's first use, to which
  // rank(s) 1 have not come"
  std::string tell_first_use();
  bool in_first_use();
  bool is_shut_down();
  // Of today's ranks, in the store.
  bool knows_more_than(const ProcessGroupOCCL* other) const;
  // For waits for the store; state_mutex_ is not held then.
  std::function<bool()> until_aborted();
  // Where this rank has joined no communicator, it tells those that wait for it; where not all have
  // joined those of this rank, it tells those that come later.
  void say_goodbye();
  void abort_by(const std::string& whom);
  void throw_if_aborted() const;  // with state_mutex_ held
  // Where a rank says so that aborts it before all have met.
  std::string aborted_key() const { return "occl/aborted/" + incarnation_; }
  std::string abort_reason() const;  // with state_mutex_ held
  // As find_abort, without the store. Does not wait for whoever destroys the group.
  std::string find_known_abort();
  // Tells of a failure on this rank, if it is the first of its kind (meeting.cc).
  void report(FailureReports::Of of, const std::string& message);
  // Does what may end because the group fails, or has failed.
  template <typename F>
  auto reported(F&& body);
  // An operation that could not be issued, because the ranks have not met.
  void report_unissued(const Call& call, const std::shared_ptr<const GroupIdentity>& group,
                       bool is_point_to_point, const std::string& message);
  FlightRecorder::Operation flight_operation(const Call& call) const;  // without its place
  static std::uint64_t global_rank(const ProcessGroupOCCL& group, int rank);
  // Says there who this rank is, and counts its groups.
  void enter_store();
  // In the store of the first of the largest groups, whose ranks know all others.
  Announcement own_announcement();
  // What this rank says of this group, and the others are to say. With groups' mutex not held.
  RollEntry roll_entry() const;
  occlRedOp_t reduction(const Call& call, const c10d::ReduceOp& op);
  c10::DeviceIndex barrier_device(const c10d::BarrierOptions& opts);
  void check_nan(c10::ArrayRef<at::Tensor> inputs, const Call& call) const;

  // The way of every operation: `issue(target)` calls OCCL once.
  template <typename F>
  WorkPtr run(Call& call, F&& issue);
  // Several calls of OCCL that are one operation of c10d.
  WorkPtr run_many(Call& call, std::vector<Issue> issues);
  WorkPtr add_to_batch(Call& call, std::vector<Issue> issues);
  Launch begin(Call& call, c10::ArrayRef<PointToPointKey> keys);
  WorkPtr end(Launch& launch, Call& call, occlResult_t result);

  WorkPtr issue_group(Launch& launch, Call& call, const std::vector<Issue>& issues);
  void remember_pending(const c10::intrusive_ptr<WorkOCCL>& work);
  void call_completion_hook(WorkOCCL& work);

  WorkPtr receive(Tensors& tensors, int source, int tag, c10d::OpType type);
  WorkPtr all_reduce_many(Tensors& tensors, const c10d::AllreduceOptions& opts, const char* name);
  static std::vector<c10::intrusive_ptr<ProcessGroupOCCL>> live_groups();
  // Unless it lives no more; it does not end meanwhile.
  static void with_live_group(std::uint64_t id, const std::function<void(ProcessGroupOCCL&)>& use);
  // Another thread may hold it for as long as ranks are missing in the group's first use: Ctrl-C
  // ends the wait for it.
  using Order = std::unique_lock<std::timed_mutex>;
  Order in_order();

  // (destroy.cc)
  class MonitoredBarrier;  // (barrier.cc)
  class Patience;
  void shutdown_until(std::chrono::steady_clock::time_point deadline);
  void drain(std::chrono::steady_clock::time_point deadline);
  void finish();
  bool everybody_is_leaving();
  c10::intrusive_ptr<ProcessGroupOCCL> make_child(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  const std::vector<int>& ranks,
                                                  c10::intrusive_ptr<OptionsOCCL> options,
                                                  c10::DeviceIndex device, occlComm_t comm);

  const std::uint64_t id_;
  const c10::intrusive_ptr<OptionsOCCL> options_;
  const std::string members_;  // their global ranks, "4,7"; "": all of the world
  // Where each rank says which group of this name it makes, by its global rank.
  const c10::intrusive_ptr<c10d::Store> roll_;
  // Everything else. Groups of one name and other members, as a split makes, have another.
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<Watcher> watcher_ = std::make_shared<Watcher>();
  std::shared_ptr<FailureReports> reports_ = std::make_shared<FailureReports>();
  // How many groups of this rank the store has seen, this one included: tells it from earlier ones.
  std::string incarnation_;
  std::chrono::steady_clock::duration entering_took_{0};  // the store, when the group was made
  // Of a world: its size, and how many of that size the store has seen. The same on all its ranks,
  // also where some were not in each world before.
  std::string world_;

  std::atomic<std::uint64_t> shrinks_{0};
  std::atomic<std::uint64_t> monitored_barriers_{0};

  // Held while an operation is issued; gives operations their order. Taken by in_order(); never
  // held by abort().
  std::timed_mutex issue_mutex_;
  std::uint64_t collective_sequence_ = 0;
  std::uint64_t splits_ = 0;  // as OCCL counts them
  std::uint64_t point_to_point_sequence_ = 0;
  std::uint64_t operation_id_ = 0;
  std::chrono::steady_clock::duration joining_took_{0};  // if this operation is the first
  std::unique_ptr<Batch> batch_;
  std::deque<c10::weak_intrusive_ptr<WorkOCCL>> pending_;  // not done when they were issued

  // Guards what follows; taken after issue_mutex_, held shortly.
  std::mutex state_mutex_;
  std::map<c10::DeviceIndex, c10::intrusive_ptr<Communicator>> communicators_;
  c10::DeviceIndex first_device_ = -1;
  int meetings_ = 0;       // begun
  bool joining_ = false;   // the last of them has not ended
  std::string first_use_;  // the operation for which a thread awaits the ranks, "" if none does
  std::shared_ptr<const GroupIdentity> identity_;
  std::string aborted_;  // why, "" if not
  bool shut_down_ = false;
  // Destroyed or aborted. Read by other groups.
  std::atomic<bool> over_{false};
};

struct ProcessGroupOCCL::Launch {
  Order order;
  std::shared_ptr<const GroupIdentity> group;
  c10::intrusive_ptr<Communicator> communicator;
  OpenregStream stream;
  std::uint64_t sequence = 0;
  std::uint64_t record = 0;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  Target target;
  std::vector<occlRequest_t> requests;  // of run_many
  occlRequest_t request = nullptr;      // of run
};

template <typename F>
auto ProcessGroupOCCL::reported(F&& body) {
  try {
    return body();
  } catch (const c10::DistError& error) {
    report(FailureReports::Of::kGroup, error.what_without_backtrace());
    throw;
  }
}

template <typename F>
ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::run(Call& call, F&& issue) {
  if (batch_ != nullptr) [[unlikely]] {
    std::vector<Issue> issues;
    issues.emplace_back(std::forward<F>(issue));
    return add_to_batch(call, std::move(issues));
  }
  const c10::ArrayRef<PointToPointKey> keys =
      call.point_to_point ? c10::ArrayRef<PointToPointKey>(*call.point_to_point)
                          : c10::ArrayRef<PointToPointKey>();
  Launch launch = begin(call, keys);
  launch.options.request = &launch.request;
  launch.target.options = &launch.options;
  const occlResult_t result = issue(launch.target);
  return end(launch, call, result);
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_PROCESS_GROUP_H_
