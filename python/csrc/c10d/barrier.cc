// Barriers: over the communicator, and over the store.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "python/csrc/c10d/presence.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/timed_store.h"
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
// ends it, and what `look` throws.
NoShow await(c10d::Store& store, std::vector<Awaited>& missing, Clock::time_point deadline,
             const std::function<void()>& look) {
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
      look();
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

// Rank 0 decides. Its deadline may lie a little later than this rank's, and it knows more.
class ProcessGroupOCCL::MonitoredBarrier {
 public:
  struct Outcome {
    occlResult_t result;
    std::string detail;
  };

  MonitoredBarrier(ProcessGroupOCCL& group, std::chrono::milliseconds timeout)
      : group_(group), timeout_(std::min(timeout, kLongestTimeout)) {}

  std::uint64_t number() const { return number_; }

  Outcome meet() {
    const StoreDeadline store_deadline(deadline_ + for_rank_0(), group_.until_aborted());
    try {
      store().set(key_of(group_.rank_), "1");
      return group_.rank_ == 0 ? decide() : obey();
    } catch (const StoreSilence& silence) {
      const std::string why = group_.find_known_abort();
      return why.empty() ? Outcome{occlTimeout, silence.what_without_backtrace()}
                         : Outcome{occlAborted, why};
    } catch (const StoreGone& gone) {
      return {occlRemoteError, gone.what_without_backtrace()};
    } catch (const Outcome& ended) {
      return ended;
    }
  }

 private:
  c10d::Store& store() { return *group_.store_; }
  std::string key_of(int rank) const { return prefix() + std::to_string(rank); }
  // A later group that meets in the store does not read these keys.
  std::string prefix() const {
    return c10::str("occl/monitored_barrier/", group_.incarnation_, "/", number_, "/");
  }
  std::chrono::milliseconds for_rank_0() const {
    return group_.rank_ == 0 ? std::chrono::milliseconds(0)
                             : std::max(std::chrono::milliseconds(50), timeout_ / 16);
  }

  Awaited awaited(int peer, std::string key) {
    std::vector<Announcement> own = group_.announcements_of_peers();
    std::erase_if(own, [peer](const Announcement& of) { return of.rank != peer; });
    return {peer, std::move(key), std::make_unique<Presence>(std::move(own))};
  }

  NoShow await_these(std::vector<Awaited>& missing, Clock::time_point deadline) {
    return await(store(), missing, deadline, [this] {
      const std::string why = group_.is_shut_down() ? "the group has been destroyed"
                                                    : find_abort(group_.id_, Asks::kAnyStore);
      if (!why.empty()) {
        throw Outcome{occlAborted, why};
      }
    });
  }

  std::vector<Awaited> all_others() {
    std::vector<Awaited> others;
    for (int peer = 0; peer < group_.size_; ++peer) {
      if (peer != group_.rank_) {
        others.push_back(awaited(peer, key_of(peer)));
      }
    }
    return others;
  }

  Outcome judge(const NoShow& no_show, const std::vector<Awaited>& missing) const {
    return no_show.why.empty() ? Outcome{occlTimeout, tell_late(missing, timeout_)}
                               : Outcome{no_show.result, no_show.why};
  }

  Outcome decide() {
    std::vector<Awaited> missing = all_others();
    const NoShow no_show = await_these(missing, deadline_);
    const Outcome outcome = missing.empty() ? Outcome{occlSuccess, ""} : judge(no_show, missing);
    store().set(prefix() + "result",
                c10::str(static_cast<int>(outcome.result), " ", outcome.detail));
    return outcome;
  }

  Outcome obey() {
    std::vector<Awaited> missing;
    missing.push_back(awaited(0, prefix() + "result"));
    const NoShow no_show = await_these(missing, deadline_ + for_rank_0());
    if (missing.empty()) {
      std::istringstream told(store().get_to_str(prefix() + "result"));
      int code = occlInternalError;
      told >> code;
      return {static_cast<occlResult_t>(code),
              std::string(std::istreambuf_iterator<char>(told >> std::ws), {})};
    }
    if (no_show.why.empty()) {
      missing = all_others();
      std::erase_if(missing, [&](const Awaited& one) { return store().check({one.key}); });
    }
    if (no_show.why.empty() && missing.empty()) {
      return {occlTimeout, c10::str("all ranks have come, but rank 0 did not say so within ",
                                    timeout_.count(), " ms")};
    }
    return judge(no_show, missing);
  }

  ProcessGroupOCCL& group_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_ = Clock::now() + timeout_;
  const std::uint64_t number_ = ++group_.monitored_barriers_;
};

void ProcessGroupOCCL::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
  ensure_initialized();  // not in a forked child
  const GilReleaseForWait no_gil;
  const auto group = identity();
  TORCH_CHECK_VALUE(store_ != nullptr, "ProcessGroupOCCL needs a store for monitored_barrier");
  MonitoredBarrier barrier(*this,
                           opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout);
  const auto [result, detail] = barrier.meet();
  if (result == occlSuccess) {
    reports_->forget(FailureReports::Of::kMonitoredBarrier);
    return;
  }
  const std::string message =
      failure_message(*group, "monitored_barrier", barrier.number(), result, detail);
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
