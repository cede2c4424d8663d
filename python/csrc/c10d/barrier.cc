// Barriers: over the communicator, and over the store.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <thread>

#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/device.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

// Never a device that the group does not use already, if it uses one: a barrier must not make
// another communicator, which the other ranks might not make.
c10::DeviceIndex ProcessGroupOCCL::barrier_device(const c10d::BarrierOptions& opts) {
  if (opts.device && opts.device->has_index()) {
    return opts.device->index();
  }
  if (!opts.device_ids.empty()) {
    return resolve_device(static_cast<c10::DeviceIndex>(opts.device_ids[0]));
  }
  if (bound_device_id_) {
    return bound_device_id_->index();
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return first_device_ >= 0 ? first_device_ : current_device();
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::barrier(const c10d::BarrierOptions& opts) {
  const auto group = identity();
  Call call(c10d::OpType::BARRIER, "barrier", *group, opts.asyncOp, opts.timeout);
  call.set_device(barrier_device(opts));
  call.blocks_host = true;
  return run(call, [](const Target& to) { return occlBarrier(to.comm, to.stream, to.options); });
}

void ProcessGroupOCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const GilReleaseIfHeld no_gil;
  const auto group = identity();
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const auto deadline = Clock::now() + timeout;
  // Counted in the store, so that a later group that meets in it does not read these keys.
  const std::int64_t number = store_->add(c10::str("occl/monitored_barriers_of_rank_", rank_), 1);
  const std::string prefix = c10::str("occl/monitored_barrier/", number, "/");
  const auto await = [&](const std::string& key, Clock::time_point until) {
    while (!store_->check({prefix + key})) {
      if (Clock::now() >= until) {
        return false;
      }
      check_signals();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  const auto fail = [&](const std::string& detail) {
    const std::string message = failure_message(
        *group, "monitored_barrier", static_cast<std::uint64_t>(number), occlTimeout, detail);
    report(FailureReports::Of::kMonitoredBarrier, message);
    C10_THROW_ERROR(DistBackendError, message);
  };
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), "1");
    // Rank 0 decides at its deadline, which may lie a little later than ours.
    if (!await("result", deadline + timeout)) {
      fail(c10::str("rank 0 did not come within ", timeout.count(), " ms"));
    }
    const std::string result = store_->get_to_str(prefix + "result");
    if (result != "ok") {
      fail(result);
    }
    reports_->forget(FailureReports::Of::kMonitoredBarrier);
    return;
  }
  std::vector<std::string> missing;
  for (int peer = 1; peer < size_ && (missing.empty() || wait_all_ranks); ++peer) {
    if (!await(std::to_string(peer), deadline)) {
      missing.push_back(std::to_string(peer));
    }
  }
  if (missing.empty()) {
    store_->set(prefix + "result", "ok");
    reports_->forget(FailureReports::Of::kMonitoredBarrier);
    return;
  }
  const std::string detail =
      c10::str(missing.size() == 1 ? "rank " : "ranks ", c10::Join(", ", missing),
               wait_all_ranks ? "" : " (and perhaps others)", " did not come within ",
               timeout.count(), " ms");
  store_->set(prefix + "result", detail);
  fail(detail);
}

}  // namespace torch_openreg
