// The position of a stream: how many pieces of work were issued on it and how many have ended.
// They end in order, so (clock, sequence number) names "the work queued up to here" for ever, at no
// cost; events, waits and the allocator's frees are such positions. Clocks are never destroyed and
// never go back, also when a stream's memory is used for another stream.
#ifndef OPENREG_RUNTIME_STREAM_CLOCK_H_
#define OPENREG_RUNTIME_STREAM_CLOCK_H_

#include <atomic>
#include <cstdint>
#include <vector>

namespace openreg {

// Memory order: completed is stored with release after the work's effects and loaded with acquire,
// so whoever sees a position passed sees what the work did.
class StreamClock {
 public:
  uint64_t issued() const { return issued_.load(std::memory_order_acquire); }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  bool Passed(uint64_t sequence) const { return completed() >= sequence; }
  // completed is read first: it never overtakes issued.
  bool Idle() const {
    uint64_t done = completed();
    return issued() == done;
  }

 protected:
  // On lines of their own: the worker writes one, the callers the other.
  alignas(64) std::atomic<uint64_t> issued_{0};
  alignas(64) std::atomic<uint64_t> completed_{0};
};

struct Position {
  const StreamClock* clock = nullptr;
  uint64_t sequence = 0;
  bool Passed() const { return clock == nullptr || clock->Passed(sequence); }
};

inline bool AllPassed(const std::vector<Position>& positions) {
  for (const Position& position : positions) {
    if (!position.Passed()) return false;
  }
  return true;
}

}  // namespace openreg
#endif  // OPENREG_RUNTIME_STREAM_CLOCK_H_
