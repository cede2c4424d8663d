// Waiting: absolute deadlines, futexes and the small lock that the runtime uses everywhere.
#ifndef OPENREG_RUNTIME_FUTEX_H_
#define OPENREG_RUNTIME_FUTEX_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace openreg {

// CLOCK_MONOTONIC in nanoseconds.
int64_t NowNs();

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A point of CLOCK_MONOTONIC, or never.
class Deadline {
 public:
  static Deadline Infinite() { return Deadline(INT64_MAX); }
  // timeout_ms < 0 is infinite, 0 has passed.
  static Deadline AfterMs(int64_t timeout_ms);
  static Deadline AtNs(int64_t at_ns) { return Deadline(at_ns); }

  bool infinite() const { return at_ns_ == INT64_MAX; }
  bool Passed() const { return !infinite() && NowNs() >= at_ns_; }
  int64_t at_ns() const { return at_ns_; }
  // What is left in milliseconds, rounded up, at most `cap_ms`; for poll().
  int RemainingMs(int cap_ms) const;
  // The earlier of this deadline and `slice_ms` from now: for waits that look around meanwhile.
  Deadline Slice(int64_t slice_ms) const;

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;
};

// Starts a thread that gets none of the process's signals (but for its own faults). Returns an
// errno.
int StartThread(pthread_t* thread, void* (*main)(void*), void* arg);
// Joins the thread, or detaches it if it has not ended by the deadline.
void JoinOrDetach(pthread_t thread, Deadline deadline);

enum class FutexScope { kProcess, kShared };

// Sleeps while *word == expected, until a wake or the deadline. Returns false if the deadline has
// passed. Wakes may be spurious: callers look at their condition again.
bool FutexWait(const void* word, uint32_t expected, Deadline deadline,
               FutexScope scope = FutexScope::kProcess);
void FutexWake(const void* word, int count, FutexScope scope = FutexScope::kProcess);

// A mutex of four bytes: spins briefly, then sleeps. Satisfies Lockable, for std::lock_guard.
// Lock is an acquire, unlock a release.
class FutexLock {
 public:
  void lock() {
    uint32_t expected = 0;
    if (!state_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
      (void)LockSlow(Deadline::Infinite());
    }
  }
  bool try_lock() {
    uint32_t expected = 0;
    return state_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  // False after the deadline.
  bool LockUntil(Deadline deadline) { return try_lock() || LockSlow(deadline); }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == 2) FutexWake(&state_, 1);
  }

 private:
  bool LockSlow(Deadline deadline);
  std::atomic<uint32_t> state_{0};  // 0 free, 1 held, 2 held and somebody sleeps
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_FUTEX_H_
