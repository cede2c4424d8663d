// Caches of free small blocks in front of the pools, so that threads that allocate at once do not
// meet: each thread uses one of kShards, with a lock that is nearly always free.
#ifndef OPENREG_RUNTIME_FRONT_CACHE_H_
#define OPENREG_RUNTIME_FRONT_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg/runtime/block.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/memory_stats.h"

namespace openreg {

class FrontCache {
 public:
  static constexpr size_t kLargest = size_t{64} << 10;  // larger blocks go to the pools
  static constexpr int kShards = 32;

  explicit FrontCache(MemoryStats* totals) : totals_(totals) {}

  // Takes a block of exactly `size` bytes that was freed for the pool and counts the allocation;
  // NULL if there is none.
  Block* Take(int pool_index, size_t size, size_t requested);
  // Counts an allocation that came from the pool.
  void CountAllocated(const Block& block, size_t requested);
  // Counts the free of a block that does not come in here. `merge`: make the totals exact.
  void CountFreed(const Block& block, bool merge);
  // Keeps a freed block and counts the free unless it was counted before. Returns blocks (a list
  // through Block::link) that are too many and go to the pool, usually none.
  Block* Put(int pool_index, Block* block, bool count);

  // Takes all cached blocks of a pool, or of all pools with pool_index < 0, out of all shards.
  Block* Drain(int pool_index);
  // Brings the totals up to date.
  void MergeStats();

 private:
  struct Bin {
    Block* head = nullptr;
    uint32_t count = 0;
  };
  struct Bins {
    std::array<Bin, kLargest / kGranule> bins;
    size_t bytes = 0;
  };
  struct alignas(128) Shard {
    FutexLock lock;  // guards the rest
    FrontStats stats;
    std::vector<std::unique_ptr<Bins>> pools;  // by pool index
  };

  static constexpr size_t kBinBytes = size_t{256} << 10;  // a bin holds at most so much,
  static constexpr size_t kPoolBytes = size_t{2} << 20;   // and all bins of a pool so much

  Shard& Mine();
  static Bins& BinsOf(Shard& shard, int pool_index);
  Block* Empty(Shard& shard, Bins& bins);
  void MergeIfDue(Shard& shard) {
    if (shard.stats.MergeDue()) [[unlikely]]
      totals_->Merge(&shard.stats);
  }

  MemoryStats* const totals_;
  std::array<Shard, kShards> shards_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_FRONT_CACHE_H_
