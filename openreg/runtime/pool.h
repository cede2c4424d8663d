// The free blocks of one stream on one device: best fit, splitting and joining, under a lock of its
// own. Streams have pools of their own because a freed block may be reused on its stream at once,
// the stream being in order, while others have to wait.
#ifndef OPENREG_RUNTIME_POOL_H_
#define OPENREG_RUNTIME_POOL_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "openreg/runtime/block.h"
#include "openreg/runtime/block_index.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/memory_stats.h"
#include "openreg/runtime/stream_clock.h"

namespace openreg {

// Blocks and segments that are in no use. Memory for them is not given back before the store: their
// number is that of the largest number of blocks there ever were.
class BlockStore {
 public:
  Block* NewBlock();
  void Recycle(Block* block);
  Segment* NewSegment(const Segment& value);
  void Recycle(Segment* segment);

 private:
  FutexLock lock_;  // guards the others
  Block* unused_ = nullptr;
  std::vector<std::unique_ptr<Block[]>> slabs_;
  std::vector<Segment*> unused_segments_;
  std::vector<std::unique_ptr<Segment>> segments_;
};

class Pool {
 public:
  Pool(int index, BlockIndex* block_index, BlockStore* store, MemoryStats* stats)
      : index_(index), block_index_(block_index), store_(store), stats_(stats) {}

  // Dense number among the device's pools.
  int index() const { return index_; }
  // The stream, or NULL for memory that may be used on all streams at once.
  const StreamClock* clock() const { return clock_.load(std::memory_order_relaxed); }
  // A new stream takes the pool over. The old one, if any, has ended and is idle, so nothing waits
  // for it any more; its sequence numbers mean nothing on the new one's clock.
  void Adopt(const StreamClock* clock);

  // Takes the smallest free block that fits, the lowest such; size is in whole granules. NULL if
  // there is none. The block's state is kMoving.
  Block* Take(size_t size);
  // The last resort for a small size: out of a segment for large ones.
  Block* TakeFromLarge(size_t size);
  // Adds a segment that is one free block and takes from it.
  Block* AddAndTake(Segment* segment, size_t size);
  // Puts blocks (a list through Block::link) back and joins them with their free neighbours.
  void Give(Block* list);

  // Takes whole free segments out of the pool whose stream has passed their last free: those of
  // `min_size`..`max_size` bytes, at most `limit` of them. They are blockless afterwards.
  std::vector<Segment*> ReleaseSegments(size_t min_size, size_t max_size, size_t limit);
  // Bytes in whole free segments, used or not by the stream still.
  size_t FreeBytes() const;

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      size_t a_size = a->Size(), b_size = b->Size();
      return a_size != b_size ? a_size < b_size : a->Offset() < b->Offset();
    }
    using is_transparent = void;
    bool operator()(const Block* a, size_t size) const { return a->Size() < size; }
  };
  using FreeSet = std::set<Block*, BySize>;

  FreeSet& SetOf(const Segment& segment) { return segment.small ? small_ : large_; }
  static bool IsWhole(const Block& block) {
    return block.previous == nullptr && block.next == nullptr;
  }
  void Enter(Block* block);
  void Leave(Block* block);
  Block* TakeLocked(FreeSet& free, size_t size, size_t least_remainder);
  void Split(Block* block, size_t size);
  Block* JoinLocked(Block* left, Block* right);
  void GiveLocked(Block* block);
  void CountInactive(const Block& block, int64_t count);
  void ReportInactive();

  const int index_;
  BlockIndex* const block_index_;
  BlockStore* const store_;
  MemoryStats* const stats_;
  std::atomic<const StreamClock*> clock_{nullptr};

  mutable std::mutex mutex_;  // guards everything below, and the blocks of the pool's segments
  FreeSet small_, large_;
  struct Change {
    int64_t count = 0, bytes = 0;
  };
  Change small_inactive_, large_inactive_;  // not yet reported
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_POOL_H_
