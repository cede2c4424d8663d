// What a group is, how it lives and ends.
#include "python/csrc/c10d/process_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "python/csrc/c10d/batch.h"
#include "python/csrc/c10d/group_store.h"
#include "python/csrc/c10d/timed_store.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/memory.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

namespace {

// The groups that live, for the interpreter's exit. Leaked: used by destructors at exit.
struct Groups {
  std::mutex mutex;
  std::vector<ProcessGroupOCCL*> live;  // in the order in which they were made
  std::atomic<std::uint64_t> next_id{1};
};
Groups& groups() {
  static auto* const instance = new Groups;
  return *instance;
}

}  // namespace

bool OptionsOCCL::nan_check_default() {
  return c10d::getCvarBool({"OCCL_NAN_CHECK"}, false) ||
         c10d::getCvarBool({"TORCH_NCCL_NAN_CHECK"}, false);
}

ProcessGroupOCCL::ProcessGroupOCCL(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   c10::intrusive_ptr<OptionsOCCL> options)
    : Backend(rank, size),
      id_(groups().next_id++),
      options_(std::move(options)),
      members_(c10::Join(",", options_->global_ranks_in_group)),
      roll_(store_of_attempt(TimedStore::of(std::move(store)))),
      store_(store_of_members(roll_, options_->global_ranks_in_group)) {
  TORCH_CHECK_VALUE(size > 0 && rank >= 0 && rank < size, "ProcessGroupOCCL: rank ", rank,
                    " is not one of 0 to ", size - 1);
  TORCH_CHECK_VALUE(options_->global_ranks_in_group.empty() ||
                        options_->global_ranks_in_group.size() == static_cast<std::size_t>(size),
                    "ProcessGroupOCCL: options.global_ranks_in_group has ",
                    options_->global_ranks_in_group.size(), " entries for ", size, " ranks");
  options_->timeout = std::min(options_->timeout, kLongestTimeout);
  pg_uid_ = options_->group_name;
  if (store_ != nullptr) {
    enter_store();
  }
  init();
  const std::lock_guard<std::mutex> lock(groups().mutex);
  groups().live.push_back(this);
}

void ProcessGroupOCCL::enter_store() {
  const std::uint64_t own = global_rank(*this, rank_);
  const auto begin = Clock::now();
  const StoreDeadline deadline(begin + options_->timeout);
  try {
    if (size_ > 1) {
      // First: who dies before that has told nobody who it is.
      announce_presence(*roll_, own, roll_entry());
    }
    // By global ranks: those who give the members in another order meet the others, and are told.
    incarnation_ = std::to_string(store_->add(c10::str("occl/groups_of_rank_", own), 1));
    if (members_.empty()) {
      world_ = c10::str(size_, ".",
                        store_->add(c10::str("occl/worlds_of_", size_, "_of_rank_", rank_), 1));
    }
  } catch (const StoreSilence& silence) {
    throw_failure(occlTimeout, failure_message(*identity(), "init", 0, occlTimeout,
                                               silence.what_without_backtrace()));
  } catch (const StoreGone& gone) {
    throw_failure(occlRemoteError, failure_message(*identity(), "init", 0, occlRemoteError,
                                                   gone.what_without_backtrace()));
  }
  entering_took_ = Clock::now() - begin;
}

ProcessGroupOCCL::~ProcessGroupOCCL() {
  const GilReleaseIfHeld no_gil;
  if (in_bad_fork()) {
    // Threads and memory of the parent: nothing here may wait for them or touch them.
    (void)new auto(watcher_);
    (void)new auto(std::move(communicators_));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(groups().mutex);
    std::erase(groups().live, this);
  }
  watcher_->stop();
  for (const auto& [device, communicator] : communicators_) {
    communicator->destroy();
  }
}

std::shared_ptr<const GroupIdentity> ProcessGroupOCCL::identity() {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  if (identity_ == nullptr || identity_->desc.size() != pg_desc_.size()) [[unlikely]] {
    auto made = std::make_shared<GroupIdentity>();
    made->name = pg_uid_.empty() ? "unnamed" : pg_uid_;
    made->desc = pg_desc_;
    made->rank = rank_;
    made->size = size_;
    made->global_ranks = options_->global_ranks_in_group;
    made->members = members_;
    identity_ = std::move(made);
  }
  return identity_;
}

void ProcessGroupOCCL::setGroupUid(const std::string& pg_uid) {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  Backend::setGroupUid(pg_uid);
  identity_.reset();
}

std::uint64_t ProcessGroupOCCL::global_rank(const ProcessGroupOCCL& group, int rank) {
  const auto& ranks = group.options_->global_ranks_in_group;
  return ranks.empty() ? static_cast<std::uint64_t>(rank) : ranks[static_cast<std::size_t>(rank)];
}

void ProcessGroupOCCL::with_live_group(std::uint64_t id,
                                       const std::function<void(ProcessGroupOCCL&)>& use) {
  const std::lock_guard<std::mutex> lock(groups().mutex);
  const auto found = std::find_if(groups().live.begin(), groups().live.end(),
                                  [id](const ProcessGroupOCCL* group) { return group->id_ == id; });
  if (found != groups().live.end()) {
    use(**found);
  }
}

// Somebody may still hold a group that is over, with ranks that have died since.
bool ProcessGroupOCCL::knows_more_than(const ProcessGroupOCCL* other) const {
  if (other == nullptr || over_ != other->over_) {
    return other == nullptr || other->over_;
  }
  return size_ > other->size_;
}

Announcement ProcessGroupOCCL::own_announcement() {
  const std::uint64_t own = global_rank(*this, rank_);
  const std::lock_guard<std::mutex> lock(groups().mutex);
  const ProcessGroupOCCL* world = nullptr;
  for (const ProcessGroupOCCL* const group : groups().live) {
    // Another rank's, where ranks are threads.
    const bool others = global_rank(*group, group->rank_) != own;
    world = group->store_ != nullptr && !others && group->knows_more_than(world) ? group : world;
  }
  return world == nullptr ? Announcement{} : Announcement{world->roll_, own, rank_, {}};
}

RollEntry ProcessGroupOCCL::roll_entry() const {
  const std::uint64_t own = global_rank(*this, rank_);
  RollEntry entry{"", members_};
  const std::lock_guard<std::mutex> lock(groups().mutex);
  for (const ProcessGroupOCCL* const group : groups().live) {
    const bool is_world =
        group->members_.empty() && group->store_ != nullptr && group != this && !group->over_;
    if (is_world && !members_.empty() && static_cast<std::uint64_t>(group->rank_) == own) {
      entry.world = group->world_;
    }
  }
  return entry;
}

std::vector<Announcement> ProcessGroupOCCL::announcements_of_peers() {
  const RollEntry expected = roll_entry();
  // A peer may have died before it made this group: then the largest of the others, the world,
  // knows it, also where this one has as many ranks. Of several the first: in each later one it may
  // be missing too. What others know of the ranks of a new world is of an old one.
  const std::lock_guard<std::mutex> lock(groups().mutex);
  const ProcessGroupOCCL* world = nullptr;
  for (const ProcessGroupOCCL* const group : groups().live) {
    const bool known = group != this && group->store_ != nullptr && !members_.empty();
    world = known && group->knows_more_than(world) ? group : world;
  }
  std::vector<Announcement> announcements;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    const std::uint64_t name = global_rank(*this, peer);
    announcements.push_back({roll_, name, peer, expected});
    for (int other = 0; world != nullptr && other < world->size_; ++other) {
      if (global_rank(*world, other) == name) {
        announcements.push_back({world->roll_, name, peer, {}});
      }
    }
  }
  return announcements;
}

occlRedOp_t ProcessGroupOCCL::reduction(const Call& call, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) [[likely]] {
    return reduce_operation(op, call.name);
  }
  const Order order = in_order();
  const auto group = identity();
  return reported([&] {
    return communicator(call.device(), Needs::kPeer, {*group, call.name, collective_sequence_ + 1})
        ->premul_sum(op, call.dtype());
  });
}

void ProcessGroupOCCL::eagerConnectSingleDevice(at::Device device) {
  TORCH_CHECK_VALUE(device.type() == c10::DeviceType::PrivateUse1,
                    "OCCL: expected a device of type ",
                    c10::DeviceTypeName(c10::DeviceType::PrivateUse1, true), ", got ", device);
  const GilReleaseForWait no_gil;
  const Order order = in_order();
  const auto group = identity();
  // torch connects as soon as it has made the group: that is one step for the user.
  const auto deadline = Clock::now() + options_->timeout - std::exchange(entering_took_, {});
  reported([&] {
    return communicator_until(deadline, resolve_device(device.index()), Needs::kAll, {*group});
  });
}

void ProcessGroupOCCL::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  options_->timeout = std::min(timeout, kLongestTimeout);
  for (const auto& [device, communicator] : communicators_) {
    communicator->set_timeout(options_->timeout);
  }
}

std::uint64_t ProcessGroupOCCL::getSequenceNumberForGroup() {
  const Order order = in_order();
  return collective_sequence_;
}

c10d::ErrorType ProcessGroupOCCL::getError() {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  for (const auto& [device, communicator] : communicators_) {
    switch (communicator->async_error()) {
      case occlSuccess:
      case occlInProgress:
        break;
      case occlTimeout:
        return c10d::ErrorType::TIMEOUT;
      case occlRemoteError:
        return c10d::ErrorType::REMOTE_ERROR;
      default:
        return c10d::ErrorType::COMM_ERROR;
    }
  }
  return c10d::ErrorType::SUCCESS;
}

void ProcessGroupOCCL::remember_pending(const c10::intrusive_ptr<WorkOCCL>& work) {
  while (!pending_.empty()) {
    const auto oldest = pending_.front().lock();
    if (oldest && !oldest->poll()) {
      break;
    }
    pending_.pop_front();
  }
  pending_.emplace_back(work);
}

std::vector<c10::intrusive_ptr<ProcessGroupOCCL>> ProcessGroupOCCL::live_groups() {
  std::vector<c10::intrusive_ptr<ProcessGroupOCCL>> live;
  const std::lock_guard<std::mutex> lock(groups().mutex);
  for (ProcessGroupOCCL* const group : groups().live) {
    live.push_back(c10::intrusive_ptr<ProcessGroupOCCL>::reclaim_copy(group));
  }
  return live;
}

ProcessGroupOCCL::Order ProcessGroupOCCL::in_order() {
  Order order(issue_mutex_, std::try_to_lock);
  if (!order.owns_lock()) [[unlikely]] {
    const GilReleaseForWait no_gil;
    while (!order.try_lock_for(kSignalInterval)) {
      check_signals();
    }
  }
  return order;
}

void ProcessGroupOCCL::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  TORCH_CHECK(onCompletionHook_ == nullptr,
              "ProcessGroupOCCL: a completion hook is registered already");
  TORCH_CHECK(hook != nullptr, "ProcessGroupOCCL: the completion hook is empty");
  onCompletionHook_ = std::move(hook);
}

void ProcessGroupOCCL::call_completion_hook(WorkOCCL& work) {
  using TimePoint = Clock::time_point;
  const auto start = std::chrono::duration_cast<Clock::duration>(work.started());
  const auto end = std::chrono::duration_cast<Clock::duration>(work.ended());
  onCompletionHook_(std::make_shared<c10d::WorkInfo>(
      work.retrieveOpType(), work.getSequencenumber(), TimePoint(start), TimePoint(end),
      std::chrono::duration<float>(end - start)));
}

void ProcessGroupOCCL::waitForPendingWorks() { watcher_->drain(Clock::time_point::max()); }

std::shared_ptr<c10::Allocator> ProcessGroupOCCL::getMemAllocator() {
  // All device memory suits OCCL; torch's allocator for the device lives as long as the process.
  return {device_allocator(), [](c10::Allocator*) {}};
}

at::Tensor ProcessGroupOCCL::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(options.device().type() == c10::DeviceType::PrivateUse1,
                    "ProcessGroupOCCL.allocate_tensor: expected a device of type ",
                    c10::DeviceTypeName(c10::DeviceType::PrivateUse1, true), ", got ",
                    options.device());
  return at::empty({size}, options);
}

bool ProcessGroupOCCL::supportsTensorAlloc(c10::DeviceIndex device) {
  return device >= -1 && device < device_count();
}

std::unordered_map<std::string, std::uint64_t> ProcessGroupOCCL::getMemoryStats() {
  std::unordered_map<std::string, std::uint64_t> sums;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  for (const auto& [device, communicator] : communicators_) {
    occlStats_t stats{};
    stats.structSize = sizeof(stats);
    if (occlCommGetStats(communicator->handle(), &stats) != occlSuccess) {
      continue;
    }
    sums["operations"] += stats.operations;
    sums["bytes_moved"] += stats.bytesMoved;
    sums["wait_time_ns"] += stats.waitTime_ns;
    sums["inline_operations"] += stats.inlineOperations;
    sums["oneshot_operations"] += stats.oneshotOperations;
    sums["direct_operations"] += stats.directOperations;
    sums["staged_operations"] += stats.stagedOperations;
  }
  return sums;
}

}  // namespace torch_openreg
