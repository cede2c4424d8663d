#include "python/csrc/c10d/lookout.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <utility>

#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/timed_store.h"

namespace torch_openreg {
namespace {

constexpr std::chrono::milliseconds kLookInterval{100};

}  // namespace

Lookout::Lookout(occlComm_t comm, std::vector<Announcement> announcements)
    : comm_(comm), presence_(std::move(announcements)) {}

Lookout::~Lookout() {
  const GilReleaseIfHeld no_gil;  // a store written in Python needs it
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Lookout::look_for(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wanted_.push_back(rank);
  look();
  if (wanted_.empty() || running_) {
    return;
  }
  if (thread_.joinable()) {
    thread_.join();  // it has let the lock go for good
  }
  try {
    thread_ = std::thread([this] { run(); });
    running_ = true;
  } catch (const std::system_error&) {
    wanted_.clear();
  }
}

bool Lookout::told(int rank) {
  std::int64_t pid = 0;
  if (occlCommGetRankPid(comm_, rank, &pid) == occlSuccess && pid != 0) {
    return true;
  }
  if (const NoShow no_show = presence_.find_other_group(rank); !no_show.why.empty()) {
    (void)occlCommAbort(comm_, no_show.why.c_str());
    return true;
  }
  const Presence::Process process = presence_.find(rank);
  if (process.pid == 0) {
    return false;
  }
  return occlCommExpectRank(comm_, rank, process.pid, process.pidfd) == occlSuccess;
}

void Lookout::look() {
  const StoreMoment moment(kSignalInterval);
  try {
    std::erase_if(wanted_, [this](int rank) { return told(rank); });
  } catch (const StoreSilence&) {
    // The next look may find them.
  } catch (const std::exception&) {
    wanted_.clear();
  }
}

void Lookout::run() {
  c10::setThreadName("occl_lookout");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wanted_.empty() && !stopping_) {
    changed_.wait_for(lock, kLookInterval, [this] { return stopping_; });
    if (!stopping_) {
      look();
    }
  }
  running_ = false;
}

}  // namespace torch_openreg
