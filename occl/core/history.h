// The last operations of a rank, kept in the control segment so that every other rank can read them
// while this one hangs, and after it has died.
#ifndef OCCL_CORE_HISTORY_H_
#define OCCL_CORE_HISTORY_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "occl/transport/control_segment.h"

namespace occl {

enum OpState : int { kQueued = 0, kStarted = 1, kComplete = 2, kFailed = 3 };

class History {
 public:
  History(ControlSegment* segment, int rank) : block_(segment->rank(rank)) {}

  // Adds a record; returns its number for Update. Threads of this rank may call at the same time.
  uint64_t Add(const occlOpRecord_t& record);
  // No effect once kHistoryPlaces newer records have been added.
  void Update(uint64_t number, OpState state, int64_t now_ns);

  // The records of any rank, oldest first, at most `capacity`; one that its owner is changing
  // meanwhile is left out. Everything in them has been checked.
  static std::vector<occlOpRecord_t> Read(ControlSegment* segment, int rank, size_t capacity);

 private:
  class Lock;

  RankBlock& block_;
  std::atomic_flag locked_ = ATOMIC_FLAG_INIT;  // threads of this rank; held for nanoseconds
};

}  // namespace occl

#endif  // OCCL_CORE_HISTORY_H_
