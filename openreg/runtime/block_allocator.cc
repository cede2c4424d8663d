#include "openreg/runtime/block_allocator.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace openreg {
namespace {

using block_word::Held;
using block_word::kOneRetain;
using block_word::kOneUse;
using block_word::StateOf;

// Generations of the whole process: an offset that is reused never repeats one.
std::atomic<uint64_t> next_generation{1};
constexpr uint64_t kGenerationBatch = 1024;

uint64_t NewGeneration() {
  thread_local uint64_t next = 0, end = 0;
  if (next == end) [[unlikely]] {
    next = next_generation.fetch_add(kGenerationBatch, std::memory_order_relaxed);
    end = next + kGenerationBatch;
  }
  return next++;
}

size_t RoundToGranule(size_t size) { return (size + kGranule - 1) & ~(kGranule - 1); }

}  // namespace

BlockAllocator::BlockAllocator(int device, const Arena& arena, MemoryBudget* budget,
                               AllocatorEnvironment environment)
    : device_(device),
      arena_(arena),
      budget_(budget),
      environment_(std::move(environment)),
      front_(&stats_),
      chunks_(arena.size(), kChunk) {}

Status BlockAllocator::Init() { return index_.Init(arena_.size()); }

Pool* BlockAllocator::PoolFor(const StreamClock* clock) {
  std::lock_guard<std::mutex> lock(pools_mutex_);
  Pool*& pool = pool_of_[clock];
  if (pool != nullptr) return pool;
  auto idle = std::find_if(ended_.begin(), ended_.end(),
                           [](const Pool* ended) { return ended->clock()->Idle(); });
  if (clock != nullptr && idle != ended_.end()) {
    pool = *idle;
    ended_.erase(idle);
    DrainFront(pool->index());
  } else {
    pools_.push_back(
        std::make_unique<Pool>(static_cast<int>(pools_.size()), &index_, &store_, &stats_));
    pool = pools_.back().get();
  }
  pool->Adopt(clock);
  return pool;
}

void BlockAllocator::StreamEnded(const StreamClock* clock) {
  std::lock_guard<std::mutex> lock(pools_mutex_);
  auto it = pool_of_.find(clock);
  if (it == pool_of_.end()) return;
  ended_.push_back(it->second);
  pool_of_.erase(it);
}

Status BlockAllocator::Allocate(size_t size, Pool* pool, void** ptr) {
  if (size > arena_.size()) return OutOfMemory(size);
  size_t rounded = RoundToGranule(size);
  Block* block =
      rounded <= FrontCache::kLargest ? front_.Take(pool->index(), rounded, size) : nullptr;
  if (block == nullptr) {
    OPENREG_RETURN_IF_ERROR(TakeFromPool(pool, rounded, &block));
    front_.CountAllocated(*block, size);
  }
  block->requested.store(size, std::memory_order_relaxed);
  block->generation.store(NewGeneration(), std::memory_order_relaxed);
  block->word.store(block_word::kLive, std::memory_order_release);
  *ptr = arena_.device_base() + block->Offset();
  return Status();
}

Status BlockAllocator::Free(void* ptr, bool everywhere) {
  Block* block = index_.StartingAt(OffsetOf(ptr));
  if (block == nullptr) return NoSuchBlock(ptr, "free");
  std::vector<Position> positions;
  Pool* pool = block->pool.load(std::memory_order_relaxed);
  const StreamClock* clock = pool == nullptr ? nullptr : pool->clock();
  // Memory for all streams was perhaps used on any of them.
  if (everywhere || clock == nullptr) environment_.busy_streams(&positions);
  uint64_t word = block->word.load(std::memory_order_acquire);
  uint64_t next;
  bool held;
  do {
    if (StateOf(word) != block_word::kLive) return NoSuchBlock(ptr, "free");
    held = Held(word) || !positions.empty();
    // The use added here keeps the block from being finished under our hands.
    next = held ? (word & ~block_word::kStateMask) + kOneUse + block_word::kPending
                : static_cast<uint64_t>(block_word::kMoving);
  } while (!block->word.compare_exchange_weak(word, next, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  block->free_sequence = clock == nullptr ? 0 : clock->issued();
  if (held) [[unlikely]] {
    FreeHeld(block, std::move(positions));
  } else {
    PutFree(block, /*count=*/true);
  }
  return Status();
}

void BlockAllocator::PutFree(Block* block, bool count) {
  Pool* pool = block->pool.load(std::memory_order_relaxed);
  if (block->Size() <= FrontCache::kLargest) {
    Block* excess = front_.Put(pool->index(), block, count);
    if (excess != nullptr) [[unlikely]]
      pool->Give(excess);
    return;
  }
  if (count) {
    front_.CountFreed(*block, /*merge=*/false);
  }
  block->link = nullptr;
  pool->Give(block);
}

// The block's state is kPending and carries one use for this function.
void BlockAllocator::FreeHeld(Block* block, std::vector<Position> positions) {
  front_.CountFreed(*block, /*merge=*/true);
  stats_.Pending(block->small, 1, static_cast<int64_t>(block->Size()));
  {
    std::lock_guard<std::mutex> lock(uses_mutex_);
    auto uses = uses_.find(block);
    if (uses != uses_.end()) {
      for (const StreamClock* clock : uses->second) positions.push_back({clock, clock->issued()});
      uses_.erase(uses);
      // RecordUse's one use per block; ours remains.
      block->word.fetch_sub(kOneUse, std::memory_order_acq_rel);
    }
    if (!AllPassed(positions)) {
      pending_.push_back({block, std::move(positions)});
      pending_count_.store(pending_.size(), std::memory_order_release);
      return;
    }
  }
  DropUse(block, kOneUse);
}

// Takes uses or a retain away; the last one of a pending block finishes its free.
void BlockAllocator::DropUse(Block* block, uint64_t amount) {
  uint64_t word = block->word.fetch_sub(amount, std::memory_order_acq_rel) - amount;
  if (word != block_word::kPending) return;
  block->word.store(block_word::kMoving, std::memory_order_relaxed);
  stats_.Pending(block->small, -1, -static_cast<int64_t>(block->Size()));
  PutFree(block, /*count=*/false);
}

void BlockAllocator::ProcessPending() {
  if (pending_count_.load(std::memory_order_acquire) == 0) return;
  std::vector<Block*> passed;
  {
    std::lock_guard<std::mutex> lock(uses_mutex_);
    auto keep = std::partition(pending_.begin(), pending_.end(), [](const PendingFree& pending) {
      return !AllPassed(pending.positions);
    });
    for (auto it = keep; it != pending_.end(); ++it) passed.push_back(it->block);
    pending_.erase(keep, pending_.end());
    pending_count_.store(pending_.size(), std::memory_order_release);
  }
  for (Block* block : passed) DropUse(block, kOneUse);
}

Block* BlockAllocator::LiveBlock(const void* ptr) const {
  Block* block = index_.Containing(OffsetOf(ptr));
  return block != nullptr && block->State() == block_word::kLive ? block : nullptr;
}

Status BlockAllocator::NoSuchBlock(const void* ptr, const char* action) const {
  Block* block = index_.Containing(OffsetOf(ptr));
  const char* what = "no allocation is there";
  if (block != nullptr) {
    what = block->State() == block_word::kLive ? "it is inside of an allocation, not its start"
                                               : "it was freed before";
  }
  return Status(orErrorInvalidDevicePointer,
                Format("%s: expected the address of a live allocation of device %d, got %p: %s",
                       action, device_, ptr, what));
}

Status BlockAllocator::AddUse(Block* block, uint64_t amount, const void* ptr, bool also_freed) {
  uint64_t word = block->word.load(std::memory_order_acquire);
  do {
    bool retained = StateOf(word) == block_word::kPending && block_word::RetainsOf(word) > 0;
    if (StateOf(word) != block_word::kLive && !(also_freed && retained)) {
      return NoSuchBlock(ptr, "use of device memory");
    }
    if (amount == kOneRetain && block_word::RetainsOf(word) == block_word::kMaxRetains) {
      return InvalidValue(Format("allocation at %p: more than 2^32 retains", ptr));
    }
  } while (!block->word.compare_exchange_weak(word, word + amount, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  return Status();
}

Status BlockAllocator::RecordUse(void* ptr, const StreamClock* clock) {
  Block* block = LiveBlock(ptr);
  if (block == nullptr) return NoSuchBlock(ptr, "record of a stream");
  Pool* pool = block->pool.load(std::memory_order_relaxed);
  // The own stream needs no record; memory for all streams waits for all of them anyway.
  if (pool->clock() == clock || pool->clock() == nullptr) return Status();
  std::lock_guard<std::mutex> lock(uses_mutex_);
  auto [uses, first] = uses_.try_emplace(block);
  if (first) {
    Status status = AddUse(block, kOneUse, ptr);
    if (!status.ok()) {
      uses_.erase(uses);
      return status;
    }
  }
  std::vector<const StreamClock*>& clocks = uses->second;
  if (std::find(clocks.begin(), clocks.end(), clock) == clocks.end()) clocks.push_back(clock);
  return Status();
}

Status BlockAllocator::Retain(void* ptr) {
  Block* block = LiveBlock(ptr);
  if (block == nullptr) return NoSuchBlock(ptr, "retain");
  return AddUse(block, kOneRetain, ptr);
}

bool BlockAllocator::RetainExact(size_t offset, uint64_t generation, uint64_t* size) {
  if (offset >= arena_.size()) return false;
  Block* block = index_.StartingAt(offset);
  if (block == nullptr || !AddUse(block, kOneRetain, arena_.device_base() + offset,
                                  /*also_freed=*/true)
                               .ok()) {
    return false;
  }
  // Retained: from here neither field can change.
  if (block->Offset() == offset &&
      block->generation.load(std::memory_order_relaxed) == generation) {
    *size = block->requested.load(std::memory_order_relaxed);
    return true;
  }
  DropUse(block, kOneRetain);
  return false;
}

Status BlockAllocator::Release(void* ptr) {
  Block* block = index_.Containing(OffsetOf(ptr));
  if (block == nullptr || block_word::RetainsOf(block->word.load(std::memory_order_acquire)) == 0) {
    return Status(orErrorInvalidDevicePointer,
                  Format("release: expected an address in retained memory of device %d, got %p",
                         device_, ptr));
  }
  DropUse(block, kOneRetain);
  return Status();
}

bool BlockAllocator::Find(const void* ptr, AllocationInfo* info) const {
  const Block* block = LiveBlock(ptr);
  if (block == nullptr) return false;
  info->offset = block->Offset();
  info->size = block->requested.load(std::memory_order_relaxed);
  info->generation = block->generation.load(std::memory_order_relaxed);
  return true;
}

void BlockAllocator::ReadStats(orMemStats* stats) {
  ProcessPending();
  front_.MergeStats();
  stats_.Read(stats);
}

void BlockAllocator::ResetPeakStats() {
  front_.MergeStats();
  stats_.ResetPeaks();
}

void BlockAllocator::ResetAccumulatedStats() {
  front_.MergeStats();
  stats_.ResetAccumulated();
}

}  // namespace openreg
