// How a group is aborted, or left: on this rank, and for ranks that this one has not met.
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/store_access.h"
#include "python/csrc/c10d/store_adapter.h"
#include "python/csrc/runtime/device.h"

namespace torch_openreg {
namespace {

// For a store that does not answer. What waits on this rank has been released before.
constexpr std::chrono::milliseconds kStorePatience{1000};
constexpr std::chrono::milliseconds kGoodbyePatience{200};
// Tells the user's aborts.
constexpr const char* kWasAborted = "' was aborted ";

// Others may be written in Python.
bool is_of_torch(const c10d::Store& store) {
  return dynamic_cast<const TimedStore*>(&store) != nullptr ||
         dynamic_cast<const c10d::HashStore*>(&store) != nullptr;
}

// Of a rank that has not joined `group`, which must outlive it.
occlConfig_t config_of(const GroupIdentity& group) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.name = group.name.c_str();
  config.device = 0;
  config.members = group.members.c_str();
  return config;
}

// What a rank tells those that come when it has gone.
struct Goodbye {
  std::string meeting;
  bool has_joined;
  std::string failure;  // of the communicator, "" if it is good
};

void say(const Goodbye& goodbye, const GroupIdentity& group,
         const c10::intrusive_ptr<c10d::Store>& store) {
  StoreAdapter adapter(store, goodbye.meeting);
  const occlConfig_t config = config_of(group);
  if (!goodbye.failure.empty()) {
    (void)occlCommAbortInit(group.size, group.rank, adapter.interface(), &config,
                            goodbye.failure.c_str());
    return;
  }
  if (goodbye.has_joined) {
    adapter.say_left(group.rank);
  }
  (void)occlCommLeaveInit(group.size, group.rank, adapter.interface(), &config,
                          goodbye.has_joined ? 1 : 0);
}

}  // namespace

std::string ProcessGroupOCCL::meeting_name(int number) const {
  return number == 0 ? incarnation_ : c10::str(incarnation_, ".", number);
}

void ProcessGroupOCCL::say_goodbye() {
  std::vector<Goodbye> goodbyes;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (!aborted_.empty() || store_ == nullptr || size_ == 1) {
      return;
    }
    if (meetings_ == 0 && communicators_.empty()) {
      goodbyes.push_back({meeting_name(0), /*has_joined=*/false, ""});
    }
    for (const auto& [device, communicator] : communicators_) {
      if (!communicator->meeting_place().empty() && !communicator->nobody_is_missing()) {
        goodbyes.push_back(
            {communicator->meeting_place(), /*has_joined=*/true, communicator->failure()});
      }
    }
  }
  if (goodbyes.empty()) {
    return;
  }
  use_store_aside(store_, kGoodbyePatience,
                  [group = identity(), goodbyes](const c10::intrusive_ptr<c10d::Store>& store) {
                    for (const Goodbye& goodbye : goodbyes) {
                      say(goodbye, *group, store);
                    }
                  });
}

std::string ProcessGroupOCCL::abort_reason() const {
  return c10::str("group '", pg_uid_, kWasAborted, aborted_);
}

// Communicators are also aborted because ranks have not come: that is none of the user's.
std::string ProcessGroupOCCL::find_known_abort() {
  const std::unique_lock<std::mutex> lock(state_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return "";
  }
  if (!aborted_.empty()) {
    return abort_reason();
  }
  for (const auto& [device, communicator] : communicators_) {
    std::string failure = communicator->failure_unless_busy();
    if (failure.find(kWasAborted) != std::string::npos) {
      return failure;
    }
  }
  return "";
}

std::string ProcessGroupOCCL::find_abort(std::uint64_t group_id, Asks asks) {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;
  std::string why;
  with_live_group(group_id, [&](ProcessGroupOCCL& live) {
    why = live.find_known_abort();
    store = live.store_;
    key = live.aborted_key();
  });
  if (!why.empty() || store == nullptr || asks == Asks::kNobody ||
      (asks == Asks::kStoreOfTorch && !is_of_torch(*below_prefixes(store)))) {
    return why;
  }
  const StoreMoment moment(kSignalInterval);
  try {
    return store->check({key}) ? store->get_to_str(key) : "";
  } catch (const c10::DistError&) {
    return "";  // silent, or gone: nobody tells there any more
  }
}

void ProcessGroupOCCL::abort() { abort_by(c10::str("by rank ", rank_, " of ", size_)); }

void ProcessGroupOCCL::abort_by(const std::string& whom) {
  const GilReleaseIfHeld no_gil;
  if (in_bad_fork()) {
    return;  // the group is the parent's
  }
  const auto group = identity();
  std::string reason;
  std::vector<std::string> meetings;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    over_ = true;
    const bool again = !aborted_.empty();
    if (!again) {
      aborted_ = whom;
    }
    reason = abort_reason();
    bool all_joined = !communicators_.empty() && !joining_;
    for (const auto& [device, communicator] : communicators_) {
      all_joined = all_joined && communicator->all_joined();
      communicator->abort_for_user(reason);
    }
    if (again || all_joined || shut_down_ || store_ == nullptr || size_ == 1) {
      return;
    }
    // That of a rank that has not come, or those that it takes or took part in.
    for (int number = 0; number < std::max(meetings_, 1); ++number) {
      meetings.push_back(meeting_name(number));
    }
  }
  const std::string key = aborted_key();
  const std::string told = c10::str("rank ", rank_, " (pid ", ::getpid(), "): ", reason);
  use_store_aside(store_, kStorePatience, [=](const c10::intrusive_ptr<c10d::Store>& store) {
    for (const std::string& meeting : meetings) {
      StoreAdapter adapter(store, meeting);
      const occlConfig_t config = config_of(*group);
      (void)occlCommAbortInit(group->size, group->rank, adapter.interface(), &config,
                              reason.c_str());
    }
    store->set(key, told);  // last: fewer wait for it
  });
}

}  // namespace torch_openreg
