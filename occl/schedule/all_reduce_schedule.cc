#include "occl/schedule/all_reduce_schedule.h"

namespace occl::schedule {

AllReduceSchedule::AllReduceSchedule(uint64_t count, uint32_t element_bytes, int nranks, int rank)
    : count_(count),
      element_bytes_(element_bytes),
      nranks_(nranks),
      rank_(rank),
      block_elems_(BlockElements(element_bytes, nranks)),
      own_(ShareOf(count, element_bytes, nranks, rank)),
      own_blocks_(NumBlocks(own_, block_elems_)),
      // Rank 0's share is never smaller than another.
      max_blocks_(NumBlocks(ShareOf(count, element_bytes, nranks, 0), block_elems_)) {
  SkipEmpty();
}

// Moves the cursor to the next block that exists, block by block and within a block peer by peer.
void AllReduceSchedule::SkipEmpty() {
  while (block_ < max_blocks_) {
    for (; turn_ < nranks_; ++turn_) {
      const Range share = ShareOf(count_, element_bytes_, nranks_, PeerAt(rank_, nranks_, turn_));
      if (block_ < NumBlocks(share, block_elems_)) return;
    }
    ++block_;
    turn_ = 1;
  }
  turn_ = nranks_;
}

AllReduceStep AllReduceSchedule::ReduceNext() {
  const uint64_t block = reduced_++;
  return {AllReduceStep::Kind::kReduce, rank_, BlockOf(own_, block_elems_, block), block};
}

AllReduceStep AllReduceSchedule::Next(uint64_t reduced) {
  const int peer = AsksFor();
  const bool own_left = reduced_ < own_blocks_;
  if (peer < 0) return own_left ? ReduceNext() : AllReduceStep{};
  // The own block goes first: the others wait for it.
  if (own_left && reduced_ <= block_) return ReduceNext();
  if (reduced <= block_) {
    return own_left ? ReduceNext() : AllReduceStep{AllReduceStep::Kind::kWait, peer, {}, block_};
  }
  const Range share = ShareOf(count_, element_bytes_, nranks_, peer);
  const AllReduceStep step = {AllReduceStep::Kind::kTake, peer,
                              BlockOf(share, block_elems_, block_), block_};
  ++turn_;
  SkipEmpty();
  return step;
}

}  // namespace occl::schedule
