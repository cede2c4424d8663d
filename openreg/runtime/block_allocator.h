// The caching allocator of one device (the place of torch's CUDACachingAllocator). Three layers:
// front caches per thread, pools per stream, segments from the arena.
//
// A block that its owner frees is reused at once on its own stream. It is held back (pending) while
// streams that were recorded for it have not passed the free, and while it is retained.
#ifndef OPENREG_RUNTIME_BLOCK_ALLOCATOR_H_
#define OPENREG_RUNTIME_BLOCK_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "openreg/runtime/arena.h"
#include "openreg/runtime/block.h"
#include "openreg/runtime/block_index.h"
#include "openreg/runtime/free_ranges.h"
#include "openreg/runtime/front_cache.h"
#include "openreg/runtime/memory_budget.h"
#include "openreg/runtime/memory_stats.h"
#include "openreg/runtime/pool.h"
#include "openreg/runtime/status.h"
#include "openreg/runtime/stream_clock.h"

namespace openreg {

// What the allocator needs of its surroundings.
struct AllocatorEnvironment {
  // Appends the present positions of all streams of the process that are not idle.
  std::function<void(std::vector<Position>*)> busy_streams;
  // Gives cached memory of the other devices back; called when the limit is reached.
  std::function<void(int device)> trim_others;
};

// A live allocation, as found by an address inside of it.
struct AllocationInfo {
  size_t offset = 0;  // of its start in the arena
  size_t size = 0;    // as requested
  uint64_t generation = 0;
};

class BlockAllocator {
 public:
  BlockAllocator(int device, const Arena& arena, MemoryBudget* budget,
                 AllocatorEnvironment environment);
  Status Init();

  // The pool of a stream; made, or inherited from a stream that has ended, at its first use.
  // `clock` NULL: the pool of memory for all streams. Pools live for ever.
  Pool* PoolFor(const StreamClock* clock);
  // The stream has ended: its pool may be inherited once it is idle.
  void StreamEnded(const StreamClock* clock);

  // size > 0. Errors: orErrorMemoryAllocation.
  Status Allocate(size_t size, Pool* pool, void** ptr);
  // everywhere: wait for what is queued on all streams now, not only for the recorded ones.
  Status Free(void* ptr, bool everywhere);
  Status RecordUse(void* ptr, const StreamClock* clock);
  Status Retain(void* ptr);
  Status Release(void* ptr);
  // Retains the allocation that starts at the offset, if it still is the one of that generation:
  // live, or freed and kept by a retain.
  bool RetainExact(size_t offset, uint64_t generation, uint64_t* size);

  // The live allocation that contains the address; false if there is none. Lock-free.
  bool Find(const void* ptr, AllocationInfo* info) const;

  // Finishes the frees whose streams have passed them.
  void ProcessPending();
  // Gives whole free segments back to the system.
  void Trim();
  // From now on the pages of a segment are this process's from the start, also those of the
  // segments there are, and not of whoever touches them first. False: the system has none left.
  bool TakePagesAtOnce();
  // Cached bytes that an allocation could still get.
  uint64_t CachedBytes();
  uint64_t reserved_bytes() const { return reserved_.load(std::memory_order_relaxed); }
  void ReadStats(orMemStats* stats);
  void ResetPeakStats();
  void ResetAccumulatedStats();
  void set_fraction(double fraction) { fraction_.store(fraction, std::memory_order_relaxed); }
  double fraction() const { return fraction_.load(std::memory_order_relaxed); }

  const Arena& arena() const { return arena_; }

 private:
  struct PendingFree {
    Block* block;
    std::vector<Position> positions;
  };

  size_t OffsetOf(const void* ptr) const {
    return static_cast<size_t>(static_cast<const char*>(ptr) - arena_.device_base());
  }
  Block* LiveBlock(const void* ptr) const;
  Status NoSuchBlock(const void* ptr, const char* action) const;
  // also_freed: a block that was freed while it is retained will do.
  Status AddUse(Block* block, uint64_t amount, const void* ptr, bool also_freed = false);

  // Allocation, slow side.
  Status TakeFromPool(Pool* pool, size_t size, Block** block);
  Block* TakeOverSegment(Pool* pool, size_t size);
  Segment* NewSegment(size_t size);
  Segment* NewSegmentOfSize(size_t segment_size, size_t size);
  bool WithinFraction(uint64_t bytes) const;
  Status OutOfMemory(size_t size);
  void ReturnSegment(Segment* segment);
  std::vector<Pool*> Pools();

  // Free, slow side.
  void FreeHeld(Block* block, std::vector<Position> positions);
  void DropUse(Block* block, uint64_t amount);
  void PutFree(Block* block, bool count);
  void DrainFront(int pool_index);

  const int device_;
  const Arena arena_;
  MemoryBudget* const budget_;
  const AllocatorEnvironment environment_;
  std::atomic<uint64_t> reserved_{0};
  std::atomic<double> fraction_{1.0};

  MemoryStats stats_;
  FrontCache front_;
  BlockIndex index_;
  BlockStore store_;
  FreeRanges chunks_;  // of the arena that belong to no segment
  std::atomic<bool> pages_at_once_{false};
  std::mutex return_mutex_;  // held while a segment is given back

  std::mutex pools_mutex_;  // guards the next three
  std::vector<std::unique_ptr<Pool>> pools_;
  std::unordered_map<const StreamClock*, Pool*> pool_of_;
  std::vector<Pool*> ended_;

  std::mutex uses_mutex_;  // guards the next two
  std::unordered_map<Block*, std::vector<const StreamClock*>> uses_;
  std::vector<PendingFree> pending_;
  std::atomic<size_t> pending_count_{0};
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_BLOCK_ALLOCATOR_H_
