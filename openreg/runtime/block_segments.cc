// The allocator's slow side: where memory comes from when a pool has none, and where it goes.
#include <algorithm>

#include "openreg/runtime/block_allocator.h"
#include "openreg/runtime/config.h"

namespace openreg {
namespace {

constexpr size_t kSmallSegment = kChunk;                 // for blocks up to kSmallLimit
constexpr size_t kLargeSegment = size_t{20} << 20;       // for blocks below kWholeSegmentLimit
constexpr size_t kWholeSegmentLimit = size_t{10} << 20;  // from here a segment is one allocation

size_t WholeChunks(size_t size) { return (size + kChunk - 1) & ~(kChunk - 1); }

size_t SegmentSize(size_t size) {
  if (size <= kSmallLimit) return kSmallSegment;
  return size < kWholeSegmentLimit ? kLargeSegment : WholeChunks(size);
}

std::string Readable(uint64_t bytes) {
  if (bytes < 1024) return Format("%llu bytes", static_cast<unsigned long long>(bytes));
  double value = static_cast<double>(bytes) / 1024;
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return Format("%.2f %s", value, units[unit]);
}

}  // namespace

// In order of cost: the pool as it is; what waits in front of it or for streams; a segment that
// another stream no longer uses; a new segment; a new segment after all caches were given back.
Status BlockAllocator::TakeFromPool(Pool* pool, size_t size, Block** block) {
  *block = pool->Take(size);
  if (*block != nullptr) return Status();
  ProcessPending();
  DrainFront(pool->index());
  *block = pool->Take(size);
  if (*block == nullptr) *block = TakeOverSegment(pool, size);
  if (*block != nullptr) return Status();
  Segment* segment = NewSegment(size);
  if (segment == nullptr) {
    stats_.Retried();
    Trim();
    environment_.trim_others(device_);
    segment = NewSegment(size);
  }
  *block = segment != nullptr    ? pool->AddAndTake(segment, size)
           : size <= kSmallLimit ? pool->TakeFromLarge(size)
                                 : nullptr;
  return *block != nullptr ? Status() : OutOfMemory(size);
}

Block* BlockAllocator::TakeOverSegment(Pool* pool, size_t size) {
  size_t wanted = SegmentSize(size);
  for (Pool* other : Pools()) {
    if (other == pool) continue;
    std::vector<Segment*> segments = other->ReleaseSegments(wanted, 2 * wanted, 1);
    if (segments.empty()) continue;
    Segment* segment = segments[0];
    bool small = size <= kSmallLimit;
    if (segment->small != small) {
      segment->small = small;
      stats_.SegmentChanged(small, static_cast<int64_t>(segment->size));
    }
    return pool->AddAndTake(segment, size);
  }
  return nullptr;
}

Segment* BlockAllocator::NewSegment(size_t size) {
  size_t wanted = SegmentSize(size);
  if (Segment* segment = NewSegmentOfSize(wanted, size)) return segment;
  // Near the limit: no more than the request itself.
  return wanted == size ? nullptr : NewSegmentOfSize(size, size);
}

Segment* BlockAllocator::NewSegmentOfSize(size_t segment_size, size_t size) {
  bool scarce = false;
  if (!WithinFraction(segment_size) || !budget_->Reserve(segment_size, &scarce)) return nullptr;
  size_t offset;
  if (!chunks_.Take(segment_size, &offset)) {
    budget_->Release(segment_size);
    return nullptr;
  }
  // After the chunks have been taken: TakePagesAtOnce sees them, or is seen.
  const bool commit = scarce || pages_at_once_.load();
  if (commit && !arena_.Commit(offset, segment_size)) {
    arena_.Punch(offset, segment_size);
    chunks_.Give(offset, segment_size);
    budget_->Release(segment_size);
    return nullptr;
  }
  reserved_.fetch_add(segment_size, std::memory_order_relaxed);
  bool small = size <= kSmallLimit;
  stats_.SegmentTaken(small, static_cast<int64_t>(segment_size));
  return store_.NewSegment({offset, segment_size, small, nullptr});
}

bool BlockAllocator::WithinFraction(uint64_t bytes) const {
  double allowed = fraction() * static_cast<double>(budget_->limit());
  return static_cast<double>(reserved_bytes() + bytes) <= allowed;
}

Status BlockAllocator::OutOfMemory(size_t size) {
  stats_.Refused();
  orMemStats stats;
  ReadStats(&stats);
  auto bytes = [](int64_t value) {
    return Readable(static_cast<uint64_t>(std::max<int64_t>(value, 0)));
  };
  std::string fraction = this->fraction() < 1 ? Format(" (of which device %d may use %.0f %%)",
                                                       device_, 100 * this->fraction())
                                              : "";
  return Status(
      orErrorMemoryAllocation,
      Format("device out of memory: tried to allocate %s on device %d. The limit of the process is "
             "%s%s, of which %s are reserved by all devices and %s by this one: %s allocated, %s "
             "freed but still in use, %s cached. The system has %s available. Free tensors, empty "
             "the cache, or raise OPENREG_DEVICE_MEMORY.",
             Readable(size).c_str(), device_, Readable(budget_->limit()).c_str(), fraction.c_str(),
             Readable(budget_->used()).c_str(), bytes(stats.all.reservedBytes.current).c_str(),
             bytes(stats.all.allocatedBytes.current).c_str(),
             bytes(stats.all.activeBytes.current - stats.all.allocatedBytes.current).c_str(),
             bytes(stats.all.reservedBytes.current - stats.all.activeBytes.current).c_str(),
             Readable(SystemAvailableBytes()).c_str()));
}

std::vector<Pool*> BlockAllocator::Pools() {
  std::lock_guard<std::mutex> lock(pools_mutex_);
  std::vector<Pool*> pools;
  for (const auto& pool : pools_) pools.push_back(pool.get());
  return pools;
}

void BlockAllocator::DrainFront(int pool_index) {
  Block* list = front_.Drain(pool_index);
  while (list != nullptr) {
    Block* block = list;
    list = block->link;
    block->link = nullptr;
    block->pool.load(std::memory_order_relaxed)->Give(block);
  }
}

void BlockAllocator::Trim() {
  ProcessPending();
  DrainFront(-1);
  for (Pool* pool : Pools()) {
    for (Segment* segment : pool->ReleaseSegments(0, SIZE_MAX, SIZE_MAX)) ReturnSegment(segment);
  }
}

void BlockAllocator::ReturnSegment(Segment* segment) {
  std::lock_guard<std::mutex> lock(return_mutex_);
  arena_.Punch(segment->offset, segment->size);
  reserved_.fetch_sub(segment->size, std::memory_order_relaxed);
  budget_->Release(segment->size);
  stats_.SegmentReturned(segment->small, static_cast<int64_t>(segment->size));
  chunks_.Give(segment->offset, segment->size);
  store_.Recycle(segment);
}

bool BlockAllocator::TakePagesAtOnce() {
  if (pages_at_once_.load()) return true;
  std::lock_guard<std::mutex> lock(return_mutex_);
  pages_at_once_.store(true);
  for (const auto& [offset, size] : chunks_.Taken()) {
    if (arena_.Commit(offset, size)) continue;
    pages_at_once_.store(false);
    return false;
  }
  return true;
}

uint64_t BlockAllocator::CachedBytes() {
  ProcessPending();
  orMemStats stats;
  ReadStats(&stats);
  return static_cast<uint64_t>(
      std::max<int64_t>(stats.all.reservedBytes.current - stats.all.activeBytes.current, 0));
}

}  // namespace openreg
