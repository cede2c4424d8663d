// split and shrink: groups made from a communicator that exists, without the store.
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/device.h"

namespace torch_openreg {
namespace {

c10::intrusive_ptr<OptionsOCCL> copy_options(
    const c10::intrusive_ptr<c10d::Backend::Options>& given, const OptionsOCCL& parent) {
  if (!given) {
    return c10::make_intrusive<OptionsOCCL>(parent);
  }
  const auto own = c10::dynamic_intrusive_pointer_cast<OptionsOCCL>(given);
  TORCH_CHECK_TYPE(own, "ProcessGroupOCCL: expected ProcessGroupOCCL.Options, got options of '",
                   given->backend, "'");
  return c10::make_intrusive<OptionsOCCL>(*own);
}

}  // namespace

c10::intrusive_ptr<ProcessGroupOCCL> ProcessGroupOCCL::make_child(
    c10::intrusive_ptr<c10d::Store> store, int rank, const std::vector<int>& ranks,
    c10::intrusive_ptr<OptionsOCCL> options, c10::DeviceIndex device, occlComm_t comm) {
  std::vector<std::uint64_t> global_ranks;
  for (const int parent_rank : ranks) {
    const auto index = static_cast<std::size_t>(parent_rank);
    global_ranks.push_back(
        options_->global_ranks_in_group.empty() ? index : options_->global_ranks_in_group[index]);
  }
  options->global_ranks_in_group = std::move(global_ranks);
  const auto reports = std::make_shared<FailureReports>();
  const Communicator::Settings settings{device, options->timeout, options->is_high_priority_stream,
                                        reports, /*own=*/{}};
  auto communicator = c10::make_intrusive<Communicator>(comm, settings, /*meeting=*/nullptr);
  auto child = c10::make_intrusive<ProcessGroupOCCL>(std::move(store), rank,
                                                     static_cast<int>(ranks.size()), options);
  child->communicators_[device] = std::move(communicator);
  child->first_device_ = device;
  child->reports_ = reports;
  return child;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOCCL::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& opts) {
  const GilReleaseForWait no_gil;
  const auto group = identity();
  TORCH_CHECK_VALUE(!ranks.empty() &&
                        std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size() &&
                        *std::min_element(ranks.begin(), ranks.end()) >= 0 &&
                        *std::max_element(ranks.begin(), ranks.end()) < size_,
                    "OCCL split on ", group->to_string(), ": expected distinct ranks of 0 to ",
                    size_ - 1, ", got ", ranks);
  auto options = copy_options(opts, *options_);
  const c10::DeviceIndex device = barrier_device({});
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const bool member = own != ranks.end();
  const int new_rank = member ? static_cast<int>(own - ranks.begin()) : -1;

  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = options->timeout.count();
  config.initTimeout_ms = options_->timeout.count();
  config.name = options->group_name.c_str();
  config.device = device;
  const std::string members = c10::Join(",", ranks);
  config.members = members.c_str();
  occlComm_t comm = nullptr;
  {
    const Order order = in_order();
    const auto parent =
        reported([&] { return communicator(device, Needs::kAll, {*group, "split", splits_ + 1}); });
    ++splits_;
    // Disjoint groups have different smallest ranks.
    const int color = member ? *std::min_element(ranks.begin(), ranks.end()) : OCCL_SPLIT_NOCOLOR;
    const occlResult_t result =
        occlCommSplit(parent->handle(), color, std::max(new_rank, 0), &comm, &config);
    if (result != occlSuccess) {
      const std::string message =
          failure_message(*group, "split", splits_, result, last_error_text(result, nullptr));
      if (!is_callers_mistake(result)) {
        const bool parent_good = parent->async_error() == occlSuccess;
        parent->tell_if_failed();
        report(parent_good ? FailureReports::Of::kSplit : FailureReports::Of::kGroup, message);
      }
      throw_failure(result, message);
    }
    reports_->forget(FailureReports::Of::kSplit);
    int came = 0;
    if (member && occlCommCount(comm, &came) == occlSuccess &&
        came != static_cast<int>(ranks.size())) {
      (void)occlCommDestroy(comm);
      throw_failure(
          occlMismatch,
          failure_message(*group, "split", splits_, occlMismatch,
                          c10::str("the ranks were given differently: this rank was told ", members,
                                   ", as ", came - 1, " other(s)")));
    }
  }
  if (!member) {
    return nullptr;
  }
  return make_child(store, new_rank, ranks, std::move(options), device, comm);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupOCCL::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
    const c10::intrusive_ptr<Options>& opts_override) {
  const GilReleaseForWait no_gil;
  const auto group = identity();
  const std::set<std::int64_t> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
  TORCH_CHECK_VALUE(!excluded.empty() && *excluded.begin() >= 0 && *excluded.rbegin() < size_,
                    "OCCL shrink on ", group->to_string(), ": expected ranks of 0 to ", size_ - 1,
                    " to exclude, got ", ranks_to_exclude);
  TORCH_CHECK_VALUE(excluded.count(rank_) == 0, "OCCL shrink on ", group->to_string(),
                    ": an excluded rank must not take part");
  auto options = copy_options(opts_override, *options_);
  const c10::DeviceIndex device = barrier_device({});
  std::vector<int> dead(excluded.begin(), excluded.end());
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (excluded.count(rank) == 0) {
      ranks.push_back(rank);
    }
  }
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = options->timeout.count();
  config.initTimeout_ms = options_->timeout.count();
  const std::string name = group->name + ":shrunk";
  config.name = name.c_str();
  config.device = device;
  occlComm_t comm = nullptr;
  c10::intrusive_ptr<Communicator> parent;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    const auto known = communicators_.find(device);
    TORCH_CHECK(known != communicators_.end(), "OCCL shrink on ", group->to_string(),
                ": the group has not communicated yet, so its ranks do not know each other");
    parent = known->second;
  }
  const std::uint64_t number = ++shrinks_;
  const occlResult_t result =
      occlCommShrink(parent->handle(), dead.data(), static_cast<int>(dead.size()), &comm, &config,
                     shrink_flags == 1 ? OCCL_SHRINK_ABORT : OCCL_SHRINK_DEFAULT);
  if (result != occlSuccess) {
    const std::string message =
        failure_message(*group, "shrink", number, result, last_error_text(result, nullptr));
    if (!is_callers_mistake(result)) {
      report(FailureReports::Of::kShrink, message);
    }
    throw_failure(result, message);
  }
  reports_->forget(FailureReports::Of::kShrink);
  if (parent->async_error() != occlSuccess) {
    parent->failures()->end();  // the new group takes its place
  }
  const int new_rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  options->group_name = name;
  // Ranks that have shrunk the group more often do not meet, so this is the same on all.
  auto store = store_ == nullptr ? nullptr
                                 : c10::make_intrusive<c10d::PrefixStore>(
                                       c10::str("occl_shrink_", number), store_);
  return make_child(std::move(store), new_rank, ranks, std::move(options), device, comm);
}

}  // namespace torch_openreg
