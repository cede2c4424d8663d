#include "openreg/runtime/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

namespace openreg {
namespace {

constexpr int kTableSize = 4096;

// Entry i is the descriptor + 1, 0 if unused. Constant-initialised: nothing runs at load time.
std::atomic<int> descriptors[kTableSize];
void (*child_callback)() = nullptr;
pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

void BeforeFork() { pthread_mutex_lock(&fork_lock); }
void AfterForkInParent() { pthread_mutex_unlock(&fork_lock); }
void AfterForkInChild() {
  pthread_mutex_unlock(&fork_lock);
  child_callback();
  for (auto& entry : descriptors) {
    int fd = entry.exchange(0, std::memory_order_relaxed) - 1;
    if (fd >= 0) close(fd);
  }
}

}  // namespace

void InstallForkHandlers(void (*in_child)()) {
  child_callback = in_child;
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
}

ScopedForkLock::ScopedForkLock() { pthread_mutex_lock(&fork_lock); }
ScopedForkLock::~ScopedForkLock() { pthread_mutex_unlock(&fork_lock); }

int AboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

void TrackDescriptor(int fd) {
  for (auto& entry : descriptors) {
    int unused = 0;
    if (entry.load(std::memory_order_relaxed) == 0 &&
        entry.compare_exchange_strong(unused, fd + 1, std::memory_order_relaxed)) {
      return;
    }
  }
}

void CloseTracked(int fd) {
  if (fd < 0) return;
  ScopedForkLock lock;
  for (auto& entry : descriptors) {
    int expected = fd + 1;
    if (entry.compare_exchange_strong(expected, 0, std::memory_order_relaxed)) break;
  }
  close(fd);
}

}  // namespace openreg
