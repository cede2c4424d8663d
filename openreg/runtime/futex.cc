#include "openreg/runtime/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace openreg {
namespace {

constexpr int64_t kNsPerMs = 1000000;
constexpr int64_t kNsPerSecond = 1000000000;
constexpr int kLockSpins = 64;

int Operation(int operation, FutexScope scope) {
  return scope == FutexScope::kProcess ? operation | FUTEX_PRIVATE_FLAG : operation;
}

}  // namespace

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

Deadline Deadline::AfterMs(int64_t timeout_ms) {
  if (timeout_ms < 0 || timeout_ms > INT64_MAX / kNsPerMs / 2) return Infinite();
  return Deadline(NowNs() + timeout_ms * kNsPerMs);
}

int Deadline::RemainingMs(int cap_ms) const {
  if (infinite()) return cap_ms;
  int64_t left_ns = at_ns_ - NowNs();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((left_ns + kNsPerMs - 1) / kNsPerMs, cap_ms));
}

Deadline Deadline::Slice(int64_t slice_ms) const {
  return Deadline(std::min(at_ns_, NowNs() + slice_ms * kNsPerMs));
}

int StartThread(pthread_t* thread, void* (*main)(void*), void* arg) {
  sigset_t blocked, previous;
  sigfillset(&blocked);
  // A thread's own faults: blocking them would only keep handlers from reporting where.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);  // inherited by the new thread
  int error = pthread_create(thread, nullptr, main, arg);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return error;
}

void JoinOrDetach(pthread_t thread, Deadline deadline) {
  // Not pthread_clockjoin_np: ThreadSanitizer of gcc 12 does not know it. A change of the wall
  // clock could make this wait differ, once, at exit.
  timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  int64_t left_ns = std::max<int64_t>(deadline.at_ns() - NowNs(), 0);
  at.tv_sec += left_ns / kNsPerSecond;
  at.tv_nsec += left_ns % kNsPerSecond;
  if (at.tv_nsec >= kNsPerSecond) {
    at.tv_sec += 1;
    at.tv_nsec -= kNsPerSecond;
  }
  if (pthread_timedjoin_np(thread, nullptr, &at) != 0) pthread_detach(thread);
}

bool FutexWait(const void* word, uint32_t expected, Deadline deadline, FutexScope scope) {
  timespec at{deadline.at_ns() / kNsPerSecond, deadline.at_ns() % kNsPerSecond};
  // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC (futex(2)).
  long rc = syscall(SYS_futex, word, Operation(FUTEX_WAIT_BITSET, scope), expected,
                    deadline.infinite() ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY);
  return !(rc == -1 && errno == ETIMEDOUT);
}

void FutexWake(const void* word, int count, FutexScope scope) {
  syscall(SYS_futex, word, Operation(FUTEX_WAKE, scope), count, nullptr, nullptr, 0);
}

bool FutexLock::LockSlow(Deadline deadline) {
  for (int i = 0; i < kLockSpins; ++i) {
    CpuRelax();
    uint32_t expected = 0;
    if (state_.load(std::memory_order_relaxed) == 0 &&
        state_.compare_exchange_weak(expected, 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  // From here the lock is taken in state 2, so that its release wakes the next sleeper.
  while (state_.exchange(2, std::memory_order_acquire) != 0) {
    if (deadline.Passed()) return false;
    FutexWait(&state_, 2, deadline);
  }
  return true;
}

}  // namespace openreg
