#include "openreg/runtime/front_cache.h"

#include <atomic>

namespace openreg {
namespace {

std::atomic<unsigned> next_shard{0};
thread_local int my_shard = -1;

// Puts `list` in front of `rest`.
Block* Concatenate(Block* list, Block* rest) {
  if (list == nullptr) return rest;
  Block* last = list;
  while (last->link != nullptr) last = last->link;
  last->link = rest;
  return list;
}

}  // namespace

FrontCache::Shard& FrontCache::Mine() {
  if (my_shard < 0) [[unlikely]] {
    my_shard = static_cast<int>(next_shard.fetch_add(1, std::memory_order_relaxed) % kShards);
  }
  return shards_[static_cast<size_t>(my_shard)];
}

FrontCache::Bins& FrontCache::BinsOf(Shard& shard, int pool_index) {
  size_t index = static_cast<size_t>(pool_index);
  if (index >= shard.pools.size()) [[unlikely]]
    shard.pools.resize(index + 1);
  if (shard.pools[index] == nullptr) [[unlikely]]
    shard.pools[index] = std::make_unique<Bins>();
  return *shard.pools[index];
}

Block* FrontCache::Take(int pool_index, size_t size, size_t requested) {
  Shard& shard = Mine();
  std::lock_guard<FutexLock> guard(shard.lock);
  Bins& bins = BinsOf(shard, pool_index);
  Bin& bin = bins.bins[(size >> kGranuleShift) - 1];
  Block* block = bin.head;
  if (block == nullptr) return nullptr;
  bin.head = block->link;
  --bin.count;
  bins.bytes -= size;
  shard.stats.Uncached(*block);
  shard.stats.Allocated(*block, static_cast<int64_t>(requested));
  MergeIfDue(shard);
  return block;
}

void FrontCache::CountAllocated(const Block& block, size_t requested) {
  Shard& shard = Mine();
  std::lock_guard<FutexLock> guard(shard.lock);
  shard.stats.Allocated(block, static_cast<int64_t>(requested));
  MergeIfDue(shard);
}

void FrontCache::CountFreed(const Block& block, bool merge) {
  Shard& shard = Mine();
  std::lock_guard<FutexLock> guard(shard.lock);
  shard.stats.Freed(block);
  if (merge) {
    totals_->Merge(&shard.stats);
  } else {
    MergeIfDue(shard);
  }
}

Block* FrontCache::Put(int pool_index, Block* block, bool count) {
  size_t size = block->Size();
  Shard& shard = Mine();
  std::lock_guard<FutexLock> guard(shard.lock);
  if (count) shard.stats.Freed(*block);
  Bins& bins = BinsOf(shard, pool_index);
  Bin& bin = bins.bins[(size >> kGranuleShift) - 1];
  Block* excess = nullptr;
  if (bins.bytes + size > kPoolBytes) [[unlikely]] {
    excess = Empty(shard, bins);
  } else if (bin.count * size >= kBinBytes) [[unlikely]] {
    // All of the bin but the new block goes: half would keep the colder blocks.
    excess = bin.head;
    bins.bytes -= bin.count * size;
    for (Block* gone = excess; gone != nullptr; gone = gone->link) shard.stats.Uncached(*gone);
    bin = Bin{};
  }
  block->link = bin.head;
  bin.head = block;
  ++bin.count;
  bins.bytes += size;
  shard.stats.Cached(*block);
  block->word.store(block_word::kCached, std::memory_order_release);
  MergeIfDue(shard);
  return excess;
}

Block* FrontCache::Empty(Shard& shard, Bins& bins) {
  Block* list = nullptr;
  for (Bin& bin : bins.bins) {
    while (bin.head != nullptr) {
      Block* block = bin.head;
      bin.head = block->link;
      shard.stats.Uncached(*block);
      block->link = list;
      list = block;
    }
    bin.count = 0;
  }
  bins.bytes = 0;
  return list;
}

Block* FrontCache::Drain(int pool_index) {
  Block* list = nullptr;
  for (Shard& shard : shards_) {
    std::lock_guard<FutexLock> guard(shard.lock);
    for (size_t i = 0; i < shard.pools.size(); ++i) {
      if (pool_index >= 0 && i != static_cast<size_t>(pool_index)) continue;
      if (shard.pools[i] != nullptr && shard.pools[i]->bytes > 0) {
        list = Concatenate(Empty(shard, *shard.pools[i]), list);
      }
    }
  }
  return list;
}

void FrontCache::MergeStats() {
  for (Shard& shard : shards_) {
    std::lock_guard<FutexLock> guard(shard.lock);
    totals_->Merge(&shard.stats);
  }
}

}  // namespace openreg
