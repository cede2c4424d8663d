// How a rank that waits for words of its peers sleeps, and is woken.
//
// A sleeper reads `rings`, announces itself (sleepers, unheard), looks at its words once more and
// sleeps on `rings`. A rank that has stored a word looks at everybody's `sleepers` and rings where
// it is not zero, so nothing is paid while nobody sleeps. The fences on both sides make sure that
// either the sleeper sees the word or the writer sees the sleeper. A bell that is rung for nothing
// costs a look.
//
// Who has been rung for but has not had a processor yet need not be rung for again: the first who
// rings clears `unheard` before it moves `rings`. So if `unheard` was cleared after a sleeper set
// it, `rings` moves after that sleeper read it, and it does not sleep.
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
  Bells(ControlSegment* segment, int rank)
      : segment_(*segment), rank_(rank), own_(segment->rank(rank).bell) {}

  // After storing words that any rank, this one included, may wait for.
  void RingAll() {
    FullFence();
    for (int r = 0; r < segment_.nranks(); ++r) {
      if (Asleep(segment_.rank(r).bell)) Ring(&segment_.rank(r).bell);
    }
  }
  void RingOwn() {
    FullFence();
    if (Asleep(own_)) Ring(&own_);
  }
  // As RingAll, but for at most `ranks` ranks: those after this one in rank order.
  void RingSome(int ranks) {
    FullFence();
    const int n = segment_.nranks();
    for (int i = 1; i < n && ranks > 0; ++i) {
      Doorbell& bell = segment_.rank((rank_ + i) % n).bell;
      if (!Asleep(bell)) continue;
      Ring(&bell);
      --ranks;
    }
  }

  // Announce; look at the words again; Sleep unless they have come; Leave.
  uint32_t Announce() {
    const uint32_t rings = own_.rings.load(std::memory_order_acquire);
    own_.unheard.store(1, std::memory_order_relaxed);
    own_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    FullFence();
    return rings;
  }
  void Sleep(uint32_t announced, int64_t timeout_ns) {
    FutexWait(&own_.rings, announced, timeout_ns);
  }
  void Leave() { own_.sleepers.fetch_sub(1, std::memory_order_relaxed); }

 private:
  static bool Asleep(const Doorbell& bell) {
    return bell.sleepers.load(std::memory_order_relaxed) != 0 &&
           bell.unheard.load(std::memory_order_relaxed) != 0;
  }
  static void Ring(Doorbell* bell) {
    bell->unheard.store(0, std::memory_order_relaxed);
    bell->rings.fetch_add(1, std::memory_order_release);
    FutexWakeAll(&bell->rings);
  }

  ControlSegment& segment_;
  const int rank_;
  Doorbell& own_;
};

}  // namespace occl

#endif  // OCCL_CORE_BELLS_H_
