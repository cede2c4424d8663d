// How a rank that waits for words of its peers sleeps, and is woken.
//
// A sleeper announces itself (sleepers), looks at its words once more and sleeps on `rings`. A rank
// that has stored a word looks at everybody's `sleepers` and rings where it is not zero, so nothing
// is paid while nobody sleeps. The fences on both sides make sure that either the sleeper sees the
// word or the writer sees the sleeper. A bell that is rung for nothing costs a look.
#ifndef OCCL_CORE_BELLS_H_
#define OCCL_CORE_BELLS_H_

#include <atomic>
#include <cstdint>

#include "occl/base/fence.h"
#include "occl/base/futex.h"
#include "occl/transport/control_segment.h"

namespace occl {

class Bells {
 public:
  Bells(ControlSegment* segment, int rank) : segment_(*segment), own_(segment->rank(rank).bell) {}

  // After storing words that any rank, this one included, may wait for.
  void RingAll() {
    FullFence();
    for (int r = 0; r < segment_.nranks(); ++r) {
      Doorbell& bell = segment_.rank(r).bell;
      if (bell.sleepers.load(std::memory_order_relaxed) != 0) Ring(&bell);
    }
  }
  void RingOwn() {
    FullFence();
    if (own_.sleepers.load(std::memory_order_relaxed) != 0) Ring(&own_);
  }

  // Announce; look at the words again; Sleep unless they have come; Leave.
  uint32_t Announce() {
    own_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    FullFence();
    return own_.rings.load(std::memory_order_acquire);
  }
  void Sleep(uint32_t announced, int64_t timeout_ns) {
    FutexWait(&own_.rings, announced, timeout_ns);
  }
  void Leave() { own_.sleepers.fetch_sub(1, std::memory_order_relaxed); }

 private:
  static void Ring(Doorbell* bell) {
    bell->rings.fetch_add(1, std::memory_order_release);
    FutexWakeAll(&bell->rings);
  }

  ControlSegment& segment_;
  Doorbell& own_;
};

}  // namespace occl

#endif  // OCCL_CORE_BELLS_H_
