// Monotonic time and deadlines. Every wait of OCCL takes a Deadline.
#ifndef OCCL_BASE_CLOCK_H_
#define OCCL_BASE_CLOCK_H_

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace occl {

inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Deadline {
 public:
  Deadline() = default;  // never
  // timeout_ms < 0: never.
  static Deadline After(int64_t timeout_ms) { return From(NowNs(), timeout_ms); }
  static Deadline From(int64_t now_ns, int64_t timeout_ms) {
    Deadline deadline;
    if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - now_ns) / 1'000'000) {
      deadline.at_ns_ = now_ns + timeout_ms * 1'000'000;
    }
    return deadline;
  }

  bool Passed(int64_t now_ns) const { return now_ns >= at_ns_; }
  bool Passed() const { return at_ns_ != INT64_MAX && Passed(NowNs()); }
  // 0 when passed.
  int64_t RemainingNs() const {
    return at_ns_ == INT64_MAX ? INT64_MAX : std::max<int64_t>(at_ns_ - NowNs(), 0);
  }
  // duration_ns after now_ns; never negative.
  static Deadline FromNs(int64_t now_ns, int64_t duration_ns) {
    Deadline deadline;
    deadline.at_ns_ = now_ns + duration_ns;
    return deadline;
  }
  // For poll(): rounded up, at most max_ms.
  int RemainingMs(int max_ms) const {
    const int64_t remaining_ms = RemainingNs() / 1'000'000;
    return static_cast<int>(std::min<int64_t>(remaining_ms, max_ms - 1)) + 1;
  }

 private:
  int64_t at_ns_ = INT64_MAX;
};

}  // namespace occl

#endif  // OCCL_BASE_CLOCK_H_
