// Barriers: over the communicator, and over the store.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "python/csrc/c10d/presence.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/timed_store.h"
#include "python/csrc/runtime/device.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kPause{1};
// For rank 0 to say what it has found, and for the others to hear it.
constexpr std::chrono::milliseconds kShortestGrace{50};
constexpr std::chrono::milliseconds kLongestHearing{500};
constexpr std::chrono::milliseconds kLookInterval{100};
// A process that ends closes its connections a little before it counts as ended.
constexpr std::chrono::milliseconds kEnding{100};

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
      : group_(group),
        timeout_(std::min(timeout, kLongestTimeout)),
        number_(++group.monitored_barriers_),
        missing_(all_others()) {}

  std::uint64_t number() const { return number_; }

  Outcome meet() {
    const StoreDeadline store_deadline(deadline_ + for_rank_0(), group_.until_aborted());
    try {
      store().set(key_of(group_.rank_), "1");
      if (group_.rank_ == 0) {
        return decide();
      }
      Outcome outcome = obey();
      say_heard();
      return outcome;
    } catch (const StoreSilence& silence) {
      const std::string why = group_.find_known_abort();
      return why.empty() ? Outcome{occlTimeout, silence.what_without_backtrace()}
                         : Outcome{occlAborted, why};
    } catch (const StoreGone& gone) {
      return {occlRemoteError, tell_ended() + gone.what_without_backtrace()};
    } catch (const Outcome& ended) {
      return ended;
    }
  }

 private:
  // Who is to write a key.
  struct Awaited {
    int rank;
    std::string key;
    std::unique_ptr<Presence> presence;
    bool came = false;
  };

  c10d::Store& store() { return *group_.store_; }
  std::string key_of(int rank) const { return prefix() + std::to_string(rank); }
  // That this rank needs the store no more.
  std::string heard_key_of(int rank) const { return key_of(rank) + "/heard"; }
  // A later group that meets in the store does not read these keys.
  std::string prefix() const {
    return c10::str("occl/monitored_barrier/", group_.incarnation_, "/", number_, "/");
  }
  std::chrono::milliseconds for_rank_0() const {
    return group_.rank_ == 0 ? std::chrono::milliseconds(0)
                             : std::max(kShortestGrace, timeout_ / 16);
  }

  std::vector<Awaited> all_others() {
    std::map<int, std::vector<Announcement>> of;
    for (Announcement& one : group_.announcements_of_peers()) {
      of[one.rank].push_back(std::move(one));
    }
    std::vector<Awaited> others;
    for (auto& [peer, own] : of) {
      others.push_back({peer, key_of(peer), std::make_unique<Presence>(std::move(own))});
    }
    return others;
  }

  // Asks of all before it forgets any: the store may throw.
  void drop_those_who_came(std::size_t first) {
    for (std::size_t i = first; i < missing_.size(); ++i) {
      missing_[i].came = store().check({missing_[i].key});
    }
    std::erase_if(missing_, [](const Awaited& awaited) { return awaited.came; });
  }

  NoShow find_no_show() {
    for (const Awaited& awaited : missing_) {
      NoShow no_show = awaited.presence->find_no_show();
      if (!no_show.why.empty() && !store().check({awaited.key})) {  // else it came and left
        return no_show;
      }
    }
    return {};
  }

  void throw_if_over() {
    const std::string why = group_.is_shut_down() ? "the group has been destroyed"
                                                  : find_abort(group_.id_, Asks::kAnyStore);
    if (!why.empty()) {
      throw Outcome{occlAborted, why};
    }
  }

  // Until nobody is missing any more, or rank 0 has decided: then nothing. Else why one of them
  // will not come, or "" at `deadline`. Ctrl-C ends it, and the group's end.
  std::optional<NoShow> await(Clock::time_point deadline) {
    const bool decides = group_.rank_ == 0;
    auto next_look = Clock::now() + kLookInterval;
    while (!missing_.empty()) {
      if (store().check({missing_.front().key})) {
        if (!decides) {
          return std::nullopt;
        }
        drop_those_who_came(0);
        continue;
      }
      const auto now = Clock::now();
      if (now >= std::min(next_look, deadline)) {
        drop_those_who_came(decides ? 0 : 1);
        NoShow no_show = find_no_show();
        if (!missing_.empty() && (!no_show.why.empty() || now >= deadline)) {
          return no_show;
        }
        throw_if_over();
        next_look = now + kLookInterval;
      }
      check_signals();
      std::this_thread::sleep_for(kPause);
    }
    return std::nullopt;
  }

  std::string tell_late() const {
    std::vector<int> ranks;
    std::string known;
    for (const Awaited& awaited : missing_) {
      ranks.push_back(awaited.rank);
      known += awaited.presence->tell_of({awaited.rank}, "");
    }
    return c10::str(ranks.size() == 1 ? "rank " : "ranks ", c10::Join(", ", ranks),
                    " did not come within ", timeout_.count(), " ms", known);
  }

  Outcome judge(const NoShow& no_show) const {
    return no_show.why.empty() ? Outcome{occlTimeout, tell_late()}
                               : Outcome{no_show.result, no_show.why};
  }

  Outcome decide() {
    const std::optional<NoShow> no_show = await(deadline_);
    const Outcome outcome = no_show ? judge(*no_show) : Outcome{occlSuccess, ""};
    store().set(prefix() + "result",
                c10::str(static_cast<int>(outcome.result), " ", outcome.detail));
    await_heard();
    return outcome;
  }

  // The caller may end this process next, and with it the store that the others ask. One of them
  // may be stopped, or have died since it came: not for long.
  void await_heard() {
    std::vector<std::string> keys;
    for (int peer = 1; peer < group_.size_; ++peer) {
      if (std::none_of(missing_.begin(), missing_.end(),
                       [peer](const Awaited& one) { return one.rank == peer; })) {
        keys.push_back(heard_key_of(peer));
      }
    }
    const auto is_over = group_.until_aborted();
    const auto end = Clock::now() + std::clamp(timeout_ / 16, kShortestGrace, kLongestHearing);
    try {
      while (!keys.empty() && !store().check(keys) && Clock::now() < end && !is_over()) {
        check_signals();
        std::this_thread::sleep_for(kPause);
      }
    } catch (const c10::DistError&) {
      // The store is silent, or gone: what it has been told is all.
    }
  }

  Outcome obey() {
    Awaited& rank_0 = missing_.front();
    rank_0.key = prefix() + "result";
    (void)rank_0.presence->find(0);  // for when it takes the store with it
    const auto no_show = await(deadline_ + for_rank_0());
    if (!no_show) {
      std::istringstream told(store().get_to_str(prefix() + "result"));
      int code = occlInternalError;
      told >> code;
      return {static_cast<occlResult_t>(code),
              std::string(std::istreambuf_iterator<char>(told >> std::ws), {})};
    }
    if (no_show->why.empty()) {
      rank_0.key = key_of(0);
      drop_those_who_came(0);
    }
    if (missing_.empty()) {
      return {occlTimeout, c10::str("all ranks have come, but rank 0 did not say so within ",
                                    timeout_.count(), " ms")};
    }
    return judge(*no_show);
  }

  void say_heard() {
    const StoreMoment moment(kSignalInterval);
    try {
      store().set(heard_key_of(group_.rank_), "1");
    } catch (const c10::DistError&) {
      // Then rank 0 waits a little longer, if it is there.
    }
  }

  // Who is known to have ended, without the store. Rank 0 last: it may have served the store and
  // left after its own failure.
  std::string tell_ended() const {
    std::string told;
    std::string of_rank_0;
    for (const Awaited& one : missing_) {
      const auto patience = one.rank == 0 ? kEnding : std::chrono::milliseconds(0);
      const long long pid = one.came ? 0 : one.presence->find_ended(one.rank, patience);
      if (pid != 0 && one.rank == 0) {
        of_rank_0 = c10::str("rank 0 (pid ", pid, ") has ended; ");
      } else if (pid != 0) {
        told += c10::str("rank ", one.rank, " (pid ", pid, ") ended before it came; ");
      }
    }
    return told + of_rank_0;
  }

  ProcessGroupOCCL& group_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_ = Clock::now() + timeout_;
  const std::uint64_t number_;
  std::vector<Awaited> missing_;  // by rank; of rank 0 the others await what it decides
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
