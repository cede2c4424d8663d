// Barriers: over the communicator, and over the store.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "python/csrc/c10d/presence.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/device.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

namespace {

// Who is to write a key.
struct Awaited {
  int rank;
  std::string key;
  std::unique_ptr<Presence> presence;
};

// Until nobody is missing any more, `deadline`, or one of them will not come: then says so. Ctrl-C
// ends it.
NoShow await(c10d::Store& store, std::vector<Awaited>& missing, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kLookInterval{100};
  const auto drop_those_who_came = [&] {
    std::erase_if(missing, [&](const Awaited& awaited) { return store.check({awaited.key}); });
  };
  auto next_look = Clock::now() + kLookInterval;
  while (!missing.empty()) {
    if (store.check({missing.front().key})) {
      drop_those_who_came();
      continue;
    }
    const auto now = Clock::now();
    if (now >= std::min(next_look, deadline)) {
      NoShow no_show;
      for (std::size_t i = 0; i < missing.size() && no_show.why.empty(); ++i) {
        no_show = missing[i].presence->find_no_show();
        if (!no_show.why.empty() && store.check({missing[i].key})) {
          no_show = {};  // it came and left
        }
      }
      drop_those_who_came();
      if (!no_show.why.empty() || now >= deadline) {
        return no_show;
      }
      next_look = now + kLookInterval;
    }
    check_signals();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

std::string tell_late(const std::vector<Awaited>& missing, std::chrono::milliseconds timeout) {
  std::vector<int> ranks;
  std::string known;
  for (const Awaited& awaited : missing) {
    ranks.push_back(awaited.rank);
    known += awaited.presence->tell_of({awaited.rank}, "");
  }
  return c10::str(ranks.size() == 1 ? "rank " : "ranks ", c10::Join(", ", ranks),
                  " did not come within ", timeout.count(), " ms", known);
}

}  // namespace

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

void ProcessGroupOCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
  const GilReleaseForWait no_gil;
  const auto group = identity();
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const auto deadline = Clock::now() + timeout;
  // Counted in the store, so that a later group that meets in it does not read these keys.
  const std::int64_t number = store_->add(c10::str("occl/monitored_barriers_of_rank_", rank_), 1);
  const std::string prefix = c10::str("occl/monitored_barrier/", number, "/");
  std::vector<Awaited> missing;
  for (int peer = rank_ == 0 ? 1 : 0; peer < (rank_ == 0 ? size_ : 1); ++peer) {
    std::vector<Announcement> own = announcements_of_peers();
    std::erase_if(own, [peer](const Announcement& of) { return of.rank != peer; });
    missing.push_back({peer, prefix + (rank_ == 0 ? std::to_string(peer) : "result"),
                       std::make_unique<Presence>(std::move(own))});
  }
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), "1");
  }
  // Rank 0 decides at its deadline, which may lie a little later than ours.
  const NoShow no_show = await(*store_, missing, rank_ == 0 ? deadline : deadline + timeout);
  occlResult_t result = no_show.why.empty() ? occlTimeout : no_show.result;
  std::string detail = no_show.why.empty() ? tell_late(missing, timeout) : no_show.why;
  if (missing.empty() && rank_ != 0) {
    std::istringstream told(store_->get_to_str(prefix + "result"));
    int code = occlInternalError;
    told >> code;
    result = static_cast<occlResult_t>(code);
    detail.assign(std::istreambuf_iterator<char>(told >> std::ws), {});
  } else if (missing.empty()) {
    result = occlSuccess;
  }
  if (rank_ == 0) {
    store_->set(prefix + "result", c10::str(static_cast<int>(result), " ", detail));
  }
  if (result == occlSuccess) {
    reports_->forget(FailureReports::Of::kMonitoredBarrier);
    return;
  }
  const std::string message = failure_message(*group, "monitored_barrier",
                                              static_cast<std::uint64_t>(number), result, detail);
  report(FailureReports::Of::kMonitoredBarrier, message);
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    for (const auto& [device, communicator] : communicators_) {
      communicator->tell_if_failed();
    }
  }
  C10_THROW_ERROR(DistBackendError, message);
}

}  // namespace torch_openreg
