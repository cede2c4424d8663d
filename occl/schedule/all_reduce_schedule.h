// The order in which one rank does its part of a large all_reduce.
//
// Reduce-scatter and all-gather in one pass: a rank reduces the blocks of its own share from all
// ranks' inputs into its own result, and takes each block of the others' shares from their results
// as soon as it is there, while it is still in a cache. A rank publishes how many blocks of its
// share it has reduced; that number is all that ranks tell each other.
//
// It may be in place: the owner of a share is the only rank that reads this range of other ranks'
// inputs, and it has read a block of all of them before it says that the block is reduced.
//
// Free of deadlock: a rank that cannot take a block reduces its own next one, and waits only when
// its whole share is reduced.
#ifndef OCCL_SCHEDULE_ALL_REDUCE_SCHEDULE_H_
#define OCCL_SCHEDULE_ALL_REDUCE_SCHEDULE_H_

#include <cstdint>

#include "occl/schedule/partition.h"

namespace occl::schedule {

struct AllReduceStep {
  enum class Kind : uint8_t {
    kReduce,  // reduce `range` of all inputs into the own result, then publish `block` + 1
    kTake,    // copy `range` from the result of `peer`, whose count has passed `block`
    kWait,    // until the count of `peer` passes `block`
    kDone,
  };
  Kind kind = Kind::kDone;
  int peer = -1;
  Range range;
  uint64_t block = 0;
};

// A cursor. Every rank constructs it with the same count, element_bytes and nranks.
class AllReduceSchedule {
 public:
  AllReduceSchedule() = default;  // done at once
  AllReduceSchedule(uint64_t count, uint32_t element_bytes, int nranks, int rank);

  // Whose count the next call of Next wants to know; -1: nobody's.
  int AsksFor() const { return turn_ < nranks_ ? PeerAt(rank_, nranks_, turn_) : -1; }

  // The next step. reduced: blocks that AsksFor() has published (anything if it is -1). Except
  // after kWait and kDone, the step counts as done: the caller must do it before it calls again.
  AllReduceStep Next(uint64_t reduced);

 private:
  AllReduceStep ReduceNext();
  void SkipEmpty();

  uint64_t count_ = 0;
  uint32_t element_bytes_ = 1;
  int nranks_ = 1;
  int rank_ = 0;
  uint64_t block_elems_ = 1;
  Range own_;
  uint64_t own_blocks_ = 0;
  uint64_t reduced_ = 0;     // blocks of the own share that have been reduced
  uint64_t max_blocks_ = 0;  // of any share
  uint64_t block_ = 0;       // to take next, from each peer in turn
  int turn_ = 1;             // 1..nranks-1; nranks: nothing is left to take
};

}  // namespace occl::schedule

#endif  // OCCL_SCHEDULE_ALL_REDUCE_SCHEDULE_H_
