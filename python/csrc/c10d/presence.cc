#include "python/csrc/c10d/presence.h"

#include <c10/util/StringUtil.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/descriptors.h"
#include "occl/api/occl_debug.h"
#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/peer_process.h"
#include "python/csrc/c10d/timed_store.h"

namespace torch_openreg {
namespace {

// Of global ranks.
std::string key_of(std::uint64_t rank) { return c10::str("occl/process_of_rank_", rank); }

std::string wait_key_of(std::uint64_t rank) { return c10::str("occl/wait_of_rank_", rank); }

// In place of an empty word.
constexpr const char* kNone = "-";

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Where pids mean the same: this boot of this kernel, in this pid namespace.
std::string own_place() {
  struct stat info{};
  const std::string boot = file_text("/proc/sys/kernel/random/boot_id");
  const auto space = ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
  return c10::str(boot.substr(0, boot.find('\n')), "/", space);
}

// For telling what is known of them.
constexpr std::chrono::milliseconds kTellPatience{500};
// Characters about ranks that have not come.
constexpr std::size_t kMaxTold = 1000;

// "waits in ...", of a process that shares a communicator with this one; "" if it tells nothing.
std::string wait_in_communicators(long long pid) {
  char text[512] = "";
  if (occlGetProcessWaits == nullptr ||  // an extra of OCCL's
      occlGetProcessWaits(pid, text, sizeof(text)) != occlSuccess || text[0] == '\0') {
    return "";
  }
  return c10::str("waits in ", text);
}

int open_pidfd(long long pid) {
  return descriptors::AboveStandard(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

bool ends_within(int pidfd, std::chrono::milliseconds patience) {
  pollfd poll_one{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&poll_one, 1, static_cast<int>(patience.count())) > 0;
}

}  // namespace

void announce_presence(c10d::Store& store, std::uint64_t rank, const RollEntry& entry) {
  const long long pid = ::getpid();
  const std::string text = c10::str(own_place(), " ", pid, " ", start_of(pid), " ",
                                    entry.world.empty() ? kNone : entry.world, " ",
                                    entry.members.empty() ? kNone : entry.members);
  store.set(key_of(rank), std::vector<std::uint8_t>(text.begin(), text.end()));
}

void ToldWait::tell(const std::string& what) {
  if (what_.empty() && own_.store != nullptr) {
    what_ = what;
    set("waits in " + what_);
  }
}

void ToldWait::over() {
  if (!what_.empty()) {
    what_.clear();
    set("");
  }
}

void ToldWait::given_up() {
  if (!what_.empty()) {
    set("has given up " + what_);
  }
}

void ToldWait::set(const std::string& text) const {
  const StoreMoment moment(kSignalInterval);  // others only know less
  try {
    own_.store->set(wait_key_of(own_.global_rank),
                    std::vector<std::uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {
    // Then nobody reads it either.
  }
}

Presence::Presence(std::vector<Announcement> announcements) {
  for (Announcement& announcement : announcements) {
    peers_.emplace_back();
    peers_.back().announcement = std::move(announcement);
  }
}

Presence::~Presence() {
  for (const Peer& peer : peers_) {
    if (peer.pidfd >= 0) {
      ::close(peer.pidfd);
    }
  }
}

void Presence::read(Peer& peer) {
  const Announcement& announcement = peer.announcement;
  const std::string key = key_of(announcement.global_rank);
  if (!announcement.store->check({key})) {
    return;
  }
  std::string text = announcement.store->get_to_str(key);
  if (peer.read && text == peer.text) {
    return;
  }
  peer.read = true;
  peer.text = std::move(text);
  std::istringstream fields(peer.text);
  std::string place;
  std::string start;
  std::string world;
  std::string members;
  if (!(fields >> place >> peer.pid >> start >> world >> members)) {
    return;
  }
  peer.of_this_world = announcement.expected.world.empty() || world == announcement.expected.world;
  const bool other = !announcement.expected.world.empty() && peer.of_this_world &&
                     members != announcement.expected.members;
  peer.members = other ? members : "";
  if (place != own_place()) {
    return;
  }
  if (peer.pidfd >= 0) {
    ::close(peer.pidfd);
  }
  peer.ended = false;
  peer.pidfd = open_pidfd(peer.pid);
  if (peer.pidfd < 0) {
    peer.ended = errno == ESRCH;
    peer.read = errno != EMFILE && errno != ENFILE && errno != ENOMEM;  // else it tries again
    return;
  }
  // After the descriptor: it belongs to the process that started then, or to none. Where it cannot
  // be read, for want of descriptors, the one that is there tells when the process ends.
  const std::string now = start_of(peer.pid);
  peer.ended = !now.empty() && now != start;
}

std::string Presence::tell_other_group(const Peer& peer) {
  return c10::str("the members were given differently: rank ", peer.announcement.rank, " (pid ",
                  peer.pid, ", global rank ", peer.announcement.global_rank,
                  ") makes the group of this name of the global ranks ", peer.members,
                  ", this rank of ", peer.announcement.expected.members);
}

NoShow Presence::find_other_group(int rank) {
  for (Peer& peer : peers_) {
    if (peer.announcement.rank != rank) {
      continue;
    }
    if (!peer.read) {
      read(peer);
    }
    if (!peer.members.empty()) {
      return {tell_other_group(peer), occlMismatch};
    }
  }
  return {};
}

NoShow Presence::find_no_show(const std::function<bool(int rank)>& has_left) {
  for (Peer& peer : peers_) {
    if (!peer.read || !peer.of_this_world) {
      read(peer);
    }
    if (!peer.members.empty()) {
      return {tell_other_group(peer), occlMismatch};
    }
    peer.ended = peer.ended || ends_within(peer.pidfd, std::chrono::milliseconds(0));
    if (peer.ended && !(has_left && has_left(peer.announcement.rank))) {
      return {
          c10::str("rank ", peer.announcement.rank, " (pid ", peer.pid, ") ended before it came")};
    }
  }
  return {};
}

std::string Presence::find_wait(int rank) const {
  for (const Peer& peer : peers_) {
    const Announcement& told = peer.announcement;
    const std::string key = wait_key_of(told.global_rank);
    if (told.rank == rank && told.store->check({key})) {
      std::string text = told.store->get_to_str(key);
      if (!text.empty()) {
        return text;
      }
    }
  }
  return "";
}

Presence::Process Presence::find(int rank) {
  for (Peer& peer : peers_) {
    if (peer.announcement.rank != rank) {
      continue;
    }
    if (!peer.read) {
      read(peer);
    }
    if (peer.ended || peer.pidfd >= 0) {
      return {peer.pid, peer.ended ? -1 : peer.pidfd};
    }
  }
  return {0, -1};
}

long long Presence::find_ended(int rank, std::chrono::milliseconds patience) {
  for (Peer& peer : peers_) {
    if (peer.announcement.rank == rank) {
      peer.ended = peer.ended || ends_within(peer.pidfd, patience);
      if (peer.ended) {
        return peer.pid;
      }
    }
  }
  return 0;
}

std::string Presence::tell_of(const std::vector<int>& missing, const char* runs_and) {
  const StoreMoment moment(kTellPatience);
  std::string text;
  for (const int rank : missing) {
    if (text.size() > kMaxTold) {
      break;
    }
    try {
      const Process process = find(rank);
      text +=
          process.pid == 0
              ? c10::str("; rank ", rank,
                         " has not made the group where this rank can see it: it has not "
                         "started, or ended before that")
              : c10::str("; rank ", rank, " (pid ", process.pid, ") ",
                         process.pidfd < 0 ? "ended" : "runs", process.pidfd < 0 ? "" : runs_and);
      std::string waits = find_wait(rank);
      if (waits.empty() && process.pid != 0) {
        waits = wait_in_communicators(process.pid);
      }
      text += waits.empty() ? "" : "; it " + waits;
    } catch (const std::exception&) {
      break;  // the store says no more
    }
  }
  return text;
}

}  // namespace torch_openreg
