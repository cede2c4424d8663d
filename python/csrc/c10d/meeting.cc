// How a group gets its communicators, and what is told where it does not, or where it fails later.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/log.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

namespace {

// Only to say more than what is known without the store.
constexpr std::chrono::milliseconds kLookPatience{1000};

}  // namespace

class ProcessGroupOCCL::FirstUse {
 public:
  FirstUse(ProcessGroupOCCL& group, const Occasion& occasion) : group_(group) {
    const std::lock_guard<std::mutex> lock(group_.state_mutex_);
    group_.first_use_ = c10::str(occasion.operation, " #", occasion.sequence);
  }
  ~FirstUse() {
    const std::lock_guard<std::mutex> lock(group_.state_mutex_);
    group_.first_use_.clear();
  }
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;

 private:
  ProcessGroupOCCL& group_;
};

bool ProcessGroupOCCL::is_shut_down() {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return shut_down_;
}

bool ProcessGroupOCCL::in_first_use() {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return !first_use_.empty();
}

std::string ProcessGroupOCCL::tell_first_use() {
  const auto group = identity();
  const std::lock_guard<std::mutex> lock(state_mutex_);
  if (first_use_.empty()) {
    return c10::str("an operation on ", group->to_string(), ", in another thread");
  }
  std::vector<int> absent;
  for (const auto& [device, communicator] : communicators_) {
    if (!communicator->all_joined()) {
      absent = communicator->absent(size_);
    }
  }
  return c10::str(first_use_, " on ", group->to_string(),
                  ", in another thread: the group's first use",
                  absent.empty() ? "" : ", to which rank(s) ", c10::Join(", ", absent),
                  absent.empty() ? "" : " have not come", group->tell_global_ranks());
}

std::function<bool()> ProcessGroupOCCL::until_aborted() {
  return [this] {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    return !aborted_.empty() || shut_down_;
  };
}

c10::intrusive_ptr<Communicator> ProcessGroupOCCL::communicator(c10::DeviceIndex device,
                                                                Needs needs,
                                                                const Occasion& occasion) {
  return communicator_until(Clock::now() + options_->timeout, device, needs, occasion);
}

c10::intrusive_ptr<Communicator> ProcessGroupOCCL::communicator_until(TimePoint deadline,
                                                                      c10::DeviceIndex device,
                                                                      Needs needs,
                                                                      const Occasion& occasion) {
  auto found = joined_communicator(deadline, device, occasion);
  if (needs == Needs::kAll && !found->all_joined()) [[unlikely]] {
    const FirstUse first_use(*this, occasion);
    const StoreDeadline store_deadline(deadline, until_aborted());
    try {
      found->await_ranks(occasion, deadline);
    } catch (const c10::DistError&) {
      found->tell_if_failed();
      throw;
    }
  }
  return found;
}

c10::intrusive_ptr<Communicator> ProcessGroupOCCL::joined_communicator(TimePoint deadline,
                                                                       c10::DeviceIndex device,
                                                                       const Occasion& occasion) {
  ensure_initialized();  // not in a forked child
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    TORCH_CHECK(!shut_down_, "OCCL: group '", pg_uid_, "' has been destroyed");
    throw_if_aborted();
    const auto known = communicators_.find(device);
    if (known != communicators_.end()) [[likely]] {
      return known->second;
    }
    if (first_device_ >= 0) {
      log_line(Severity::kWarning, static_cast<std::int64_t>(global_rank(*this, rank_)),
               c10::str("OCCL: rank ", rank_, " of group '", pg_uid_, "' uses device ",
                        static_cast<int>(device), " for the first time, after device ",
                        static_cast<int>(first_device_),
                        ". Every rank has to go to a new device with the same operation, because "
                        "ranks meet again for it; otherwise this waits until the timeout."));
    }
  }
  TORCH_CHECK_VALUE(store_ != nullptr, "ProcessGroupOCCL needs a store to meet in");
  const FirstUse first_use(*this, occasion);
  const StoreDeadline store_deadline(deadline, until_aborted());
  const Communicator::Settings settings{
      device, options_->timeout, options_->is_high_priority_stream, reports_, own_announcement()};
  const auto begin = Clock::now();
  std::string meeting;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    meeting = meeting_name(meetings_++);
    joining_ = true;
  }
  c10::intrusive_ptr<Communicator> made;
  try {
    made = Communicator::join(std::make_unique<StoreAdapter>(store_, meeting), occasion, settings,
                              announcements_of_peers(), deadline);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    joining_ = false;
    throw_if_aborted();  // then that is why
    throw;
  }
  joining_took_ = Clock::now() - begin;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  joining_ = false;
  if (!aborted_.empty()) {
    made->abort_for_user(abort_reason());
  }
  first_device_ = first_device_ < 0 ? device : first_device_;
  reports_->forget(FailureReports::Of::kGroup);
  return communicators_[device] = std::move(made);
}

std::string ProcessGroupOCCL::find_dead(const std::vector<int>& ranks) {
  std::vector<Announcement> announcements;
  for (const int rank : ranks) {
    if (rank != rank_ && store_ != nullptr) {
      announcements.push_back({roll_, global_rank(*this, rank), rank, {}});
    }
  }
  const StoreMoment moment(kLookPatience);
  try {
    return Presence(std::move(announcements)).find_no_show().why;
  } catch (const StoreSilence&) {
    return "";
  }
}

void ProcessGroupOCCL::throw_if_aborted() const {
  if (!aborted_.empty()) [[unlikely]] {
    for (const auto& [device, communicator] : communicators_) {
      communicator->failures()->tell();
    }
    C10_THROW_ERROR(DistBackendError,
                    c10::str("OCCL: group '", pg_uid_, "' was aborted: ", aborted_));
  }
}

void ProcessGroupOCCL::report(FailureReports::Of of, const std::string& message) {
  if (!reports_->first(of)) {
    return;
  }
  c10::intrusive_ptr<Communicator> known;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (!communicators_.empty()) {
      known = communicators_.begin()->second;
    }
  }
  if (known) {
    known->log_failure(*identity(), message);
  } else {
    log_failure(*identity(), message, "");
  }
}

std::function<void(const std::string&)> ProcessGroupOCCL::reporter(FailureReports::Of of) {
  return [of, reports = reports_, group = identity()](const std::string& message) {
    if (reports->first(of)) {
      log_failure(*group, message, "");
    }
  };
}

FlightRecorder::Operation ProcessGroupOCCL::flight_operation(const Call& call) const {
  FlightRecorder::Operation operation;
  operation.name = call.name;
  operation.peer = call.point_to_point ? call.point_to_point->peer : -1;
  operation.timeout_ms =
      call.timeout == c10d::kUnsetTimeout ? options_->timeout.count() : call.timeout.count();
  return operation;
}

// It has no place in the group's order. What is recorded of it is for the one report: a program may
// try again and again.
void ProcessGroupOCCL::report_unissued(const Call& call,
                                       const std::shared_ptr<const GroupIdentity>& group,
                                       bool is_point_to_point, const std::string& message) {
  if (!reports_->told(FailureReports::Of::kGroup)) {
    FlightRecorder::Operation operation = flight_operation(call);
    operation.collective_sequence = collective_sequence_ + (is_point_to_point ? 0 : 1);
    operation.point_to_point_sequence = point_to_point_sequence_ + (is_point_to_point ? 1 : 0);
    operation.operation_id = operation_id_ + 1;
    operation.is_point_to_point = is_point_to_point;
    FlightRecorder& recorder = FlightRecorder::get();
    recorder.finish(recorder.record(group, operation, call.shown_inputs, call.shown_outputs),
                    FlightRecorder::State::kFailed, 0, 0);
  }
  report(FailureReports::Of::kGroup, message);
}

}  // namespace torch_openreg
