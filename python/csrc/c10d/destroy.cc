// How a group is destroyed: what it waits for, what it says meanwhile, what ends the wait.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <vector>

#include "python/csrc/c10d/batch.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/timed_store.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/log.h"
#include "python/csrc/sanitizer/work.h"

namespace torch_openreg {
namespace {

using Clock = std::chrono::steady_clock;

long long in_s(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

// How long destroy waits for what is pending. A peer that is only late will still come, and needs
// what we have issued. Once every rank is here, nothing new is issued: what does not complete then
// soon never will.
class ProcessGroupOCCL::Patience {
 public:
  Patience(ProcessGroupOCCL& group, Clock::time_point deadline)
      : group_(group), deadline_(deadline) {}

  // False: it is over. Says what for at times; `tell` is asked only then.
  template <typename Tell>
  bool lasts(Tell&& tell) {
    const auto now = Clock::now();
    if (now >= deadline_) {
      return false;
    }
    if (!asked_all_ && now >= next_question_) {
      asked_all_ = group_.everybody_is_leaving();
      next_question_ = now + kBetweenQuestions;
      deadline_ = asked_all_ ? std::min(deadline_, now + kAfterAllLeave) : deadline_;
    }
    if (now >= next_warning_) {
      warn(tell(), now);
    }
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kBeforeAsking{1000};
  static constexpr std::chrono::milliseconds kBetweenQuestions{100};
  static constexpr std::chrono::milliseconds kAfterAllLeave{1000};
  static constexpr std::chrono::seconds kBeforeWarning{5};

  void warn(const std::string& what, Clock::time_point now) {
    log_line(Severity::kWarning, static_cast<std::int64_t>(group_.identity()->global_rank()),
             c10::str("OCCL: destroying a group has waited ", in_s(now - begin_), " s for ", what,
                      ". It waits ", in_s(deadline_ - now),
                      " s more at most, because ranks that are only late need what is pending "
                      "here. To end it at once: Ctrl-C; to destroy without waiting: "
                      "torch.distributed.distributed_c10d._abort_process_group()"));
    warning_interval_ *= 4;
    next_warning_ = begin_ + warning_interval_;
  }

  ProcessGroupOCCL& group_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point deadline_;
  bool asked_all_ = false;
  Clock::time_point next_question_ = begin_ + kBeforeAsking;
  std::chrono::seconds warning_interval_ = kBeforeWarning;
  Clock::time_point next_warning_ = begin_ + kBeforeWarning;
};

bool ProcessGroupOCCL::everybody_is_leaving() {
  const StoreMoment moment(kSignalInterval);
  try {
    const std::string prefix = "occl/leaving/" + incarnation_ + "/";
    store_->set(prefix + std::to_string(rank_), "1");
    std::vector<std::string> keys;
    for (int peer = 0; peer < size_; ++peer) {
      keys.push_back(prefix + std::to_string(peer));
    }
    return store_->check(keys);
  } catch (const StoreSilence&) {
    return false;
  } catch (const std::exception&) {
    return true;  // the store's owner has left already
  }
}

void ProcessGroupOCCL::drain(Clock::time_point deadline) {
  if (Clock::now() >= deadline) {
    return;  // an exit that does not wait
  }
  Patience patience(*this, deadline);
  std::deque<c10::weak_intrusive_ptr<WorkOCCL>> pending;
  {
    Order order(issue_mutex_, std::defer_lock);
    while (!order.try_lock_for(kSignalInterval)) {
      if (!patience.lasts([this] { return tell_first_use(); })) {
        return;
      }
      check_signals();
    }
    pending.swap(pending_);
  }
  for (const auto& weak : pending) {
    const auto work = weak.lock();
    while (work && !work->wait_on_host(Clock::now() + kSignalInterval)) {
      if (!patience.lasts([&] { return work->tell_pending(); })) {
        return;
      }
    }
  }
}

void ProcessGroupOCCL::shutdown() {
  const GilReleaseIfHeld no_gil;
  if (in_bad_fork()) {
    return;  // the group is the parent's
  }
  say_goodbye();
  shutdown_until(Clock::now() + options_->timeout);
}

void ProcessGroupOCCL::shutdown_all(std::chrono::milliseconds drain) {
  if (in_bad_fork()) {
    return;
  }
  const auto deadline = Clock::now() + drain;
  for (const auto& group : live_groups()) {
    group->shutdown_until(deadline);
  }
}

void ProcessGroupOCCL::finish() {
  watcher_->stop();
  Order order(issue_mutex_, std::defer_lock);
  while (!order.try_lock_for(kSignalInterval)) {
    if (in_first_use()) {  // another thread is, and waits for ranks
      abort_by(c10::str("by rank ", rank_, " of ", size_, ", which destroys it"));
    }
    check_signals();
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  shut_down_ = true;
  over_ = true;
  batch_.reset();
  for (const auto& [device, communicator] : communicators_) {
    communicator->destroy();
  }
  communicators_.clear();
  reap_finished();  // what ended meanwhile holds communicators, and with them streams
}

void ProcessGroupOCCL::shutdown_until(Clock::time_point deadline) {
  const GilReleaseIfHeld no_gil;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (shut_down_) {
      return;
    }
  }
  sanitizer::group_leaves(identity()->to_string());
  try {
    drain(deadline);
  } catch (...) {
    finish();  // Ctrl-C
    throw;
  }
  finish();
}

}  // namespace torch_openreg
