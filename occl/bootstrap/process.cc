#include "occl/bootstrap/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>

#include "occl/base/poll_all.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace occl {
namespace {

void FillRandom(void* bytes, size_t size) {
  auto* at = static_cast<unsigned char*>(bytes);
  while (size > 0) {
    const ssize_t got = getrandom(at, size, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::abort();  // getrandom exists on every kernel this library runs on
    }
    at += got;
    size -= static_cast<size_t>(got);
  }
}

UniqueFd OpenPidFd(pid_t pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Field 22 of /proc/PID/stat; 0: it cannot be read.
uint64_t StartTicksOf(int64_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024] = "";
  if (!file.valid() || read(file.get(), text, sizeof(text) - 1) <= 0) return 0;
  const char* at = std::strrchr(text, ')');  // field 2, a name, may hold anything
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

}  // namespace

ProcessToken OwnProcessToken() {
  static std::mutex mutex;
  static pid_t owner = 0;
  static ProcessToken token;
  std::lock_guard<std::mutex> lock(mutex);
  if (owner != getpid()) {
    owner = getpid();
    FillRandom(&token, sizeof(token));
  }
  return token;
}

ProcessId OwnProcessId() {
  static std::mutex mutex;
  static ProcessId own = {};
  std::lock_guard<std::mutex> lock(mutex);
  if (own.pid != getpid() || own.start_ticks == 0) {
    own = {getpid(), OwnPidNamespace(), StartTicksOf(getpid())};
  }
  return own;
}

bool HasEnded(const ProcessId& process) {
  bool ended = false;
  const UniqueFd pidfd = PidFdOf(static_cast<pid_t>(process.pid), process.pid_namespace, &ended);
  if (!pidfd.valid()) return ended;
  pollfd poll_one = {pidfd.get(), POLLIN, 0};
  if (poll(&poll_one, 1, 0) > 0) return true;  // its parent has not waited for it
  const uint64_t start_ticks = StartTicksOf(process.pid);
  return process.start_ticks != 0 && start_ticks != 0 && start_ticks != process.start_ticks;
}

void ProcessorSet::Add(const ProcessorSet& other) {
  for (size_t i = 0; i < std::size(words); ++i) words[i] |= other.words[i];
}

int ProcessorSet::Count() const {
  int count = 0;
  for (const uint64_t word : words) count += std::popcount(word);
  return count;
}

ProcessorSet OwnProcessors() {
  ProcessorSet set = {};
  static_assert(sizeof(cpu_set_t) == sizeof(set));
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    std::memcpy(&set, &allowed, sizeof(set));
  }
  return set;
}

Secret RandomSecret() {
  Secret secret;
  FillRandom(secret.bytes, sizeof(secret.bytes));
  return secret;
}

bool SameSecret(const Secret& a, const Secret& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < sizeof(a.bytes); ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == 0;
}

UniqueFd PidFdOfSocketPeer(int socket) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return UniqueFd(fd);
  ucred credentials;
  size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return UniqueFd();
  UniqueFd pidfd = OpenPidFd(credentials.pid);
  // The pid could have been reused between the two calls only if the peer had ended, and then the
  // socket is at its end.
  char byte;
  if (pidfd.valid() && recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) pidfd.Reset();
  return pidfd;
}

UniqueFd PidFdOfSelf() { return OpenPidFd(getpid()); }

UniqueFd PidFdOf(pid_t pid, uint64_t pid_namespace, bool* ended) {
  const uint64_t own = OwnPidNamespace();
  *ended = false;
  if (own == 0 || own != pid_namespace) return UniqueFd();
  UniqueFd pidfd = OpenPidFd(pid);
  *ended = !pidfd.valid() && errno == ESRCH;
  return pidfd;
}

uint64_t OwnPidNamespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

void CheckEnded(const std::vector<UniqueFd>& pidfds, std::vector<bool>* ended) {
  std::vector<pollfd> polls(pidfds.size());
  for (size_t i = 0; i < pidfds.size(); ++i) {
    polls[i] = {(*ended)[i] ? -1 : pidfds[i].get(), POLLIN, 0};
  }
  if (PollAll(&polls, 0) <= 0) return;
  for (size_t i = 0; i < polls.size(); ++i) {
    if ((polls[i].revents & POLLIN) != 0) (*ended)[i] = true;
  }
}

}  // namespace occl
