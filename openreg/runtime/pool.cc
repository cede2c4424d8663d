#include "openreg/runtime/pool.h"

#include <algorithm>

namespace openreg {
namespace {

constexpr int kBlocksPerSlab = 128;
// A large block is split unless hardly anything remains: what is not split off is memory that the
// allocation takes and does not use, here at most a 32nd of it.
constexpr size_t kLargeRemainder = kSmallLimit / 32;

}  // namespace

Block* BlockStore::NewBlock() {
  std::lock_guard<FutexLock> guard(lock_);
  if (unused_ == nullptr) {
    slabs_.push_back(std::make_unique<Block[]>(kBlocksPerSlab));
    for (int i = 0; i < kBlocksPerSlab; ++i) {
      Block* block = &slabs_.back()[i];
      block->link = unused_;
      unused_ = block;
    }
  }
  Block* block = unused_;
  unused_ = block->link;
  return block;
}

Segment* BlockStore::NewSegment(const Segment& value) {
  std::lock_guard<FutexLock> guard(lock_);
  if (unused_segments_.empty()) {
    unused_segments_.push_back(segments_.emplace_back(std::make_unique<Segment>()).get());
  }
  Segment* segment = unused_segments_.back();
  unused_segments_.pop_back();
  *segment = value;
  return segment;
}

void BlockStore::Recycle(Segment* segment) {
  std::lock_guard<FutexLock> guard(lock_);
  unused_segments_.push_back(segment);
}

void BlockStore::Recycle(Block* block) {
  block->word.store(block_word::kUnused, std::memory_order_release);
  block->segment = nullptr;
  block->previous = block->next = nullptr;
  std::lock_guard<FutexLock> guard(lock_);
  block->link = unused_;
  unused_ = block;
}

void Pool::Enter(Block* block) {
  block->word.store(block_word::kFree, std::memory_order_release);
  SetOf(*block->segment).insert(block);
  CountInactive(*block, 1);
}

void Pool::Leave(Block* block) {
  SetOf(*block->segment).erase(block);
  CountInactive(*block, -1);
}

void Pool::CountInactive(const Block& block, int64_t count) {
  if (IsWhole(block)) return;
  Change& change = block.small ? small_inactive_ : large_inactive_;
  change.count += count;
  change.bytes += count * static_cast<int64_t>(block.Size());
}

void Pool::ReportInactive() {
  stats_->Inactive(/*small=*/true, small_inactive_.count, small_inactive_.bytes);
  stats_->Inactive(/*small=*/false, large_inactive_.count, large_inactive_.bytes);
  small_inactive_ = large_inactive_ = Change();
}

void Pool::Adopt(const StreamClock* clock) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (FreeSet* free : {&small_, &large_}) {
    for (Block* block : *free) block->free_sequence = 0;
  }
  clock_.store(clock, std::memory_order_relaxed);
}

Block* Pool::Take(size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  return size <= kSmallLimit ? TakeLocked(small_, size, kGranule)
                             : TakeLocked(large_, size, kLargeRemainder);
}

Block* Pool::TakeFromLarge(size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  return TakeLocked(large_, size, kGranule);
}

Block* Pool::TakeLocked(FreeSet& free, size_t size, size_t least_remainder) {
  auto best = free.lower_bound(size);
  if (best == free.end()) return nullptr;
  Block* block = *best;
  Leave(block);
  if (block->Size() - size >= least_remainder) Split(block, size);
  block->word.store(block_word::kMoving, std::memory_order_relaxed);
  ReportInactive();
  return block;
}

void Pool::Split(Block* block, size_t size) {
  Block* rest = store_->NewBlock();
  rest->offset.store(block->Offset() + size, std::memory_order_relaxed);
  rest->size.store(block->Size() - size, std::memory_order_relaxed);
  rest->pool.store(this, std::memory_order_relaxed);
  rest->free_sequence = block->free_sequence;
  rest->segment = block->segment;
  rest->small = block->small;
  rest->previous = block;
  rest->next = block->next;
  if (block->next != nullptr) block->next->previous = rest;
  block->next = rest;
  block->size.store(size, std::memory_order_relaxed);
  block_index_->Insert(rest);
  Enter(rest);
}

Block* Pool::AddAndTake(Segment* segment, size_t size) {
  Block* block = store_->NewBlock();
  block->offset.store(segment->offset, std::memory_order_relaxed);
  block->size.store(segment->size, std::memory_order_relaxed);
  block->pool.store(this, std::memory_order_relaxed);
  block->free_sequence = 0;
  block->segment = segment;
  block->small = segment->small;
  block->previous = block->next = nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  segment->first = block;
  block_index_->Insert(block);
  Enter(block);
  return size <= kSmallLimit ? TakeLocked(small_, size, kGranule)
                             : TakeLocked(large_, size, kLargeRemainder);
}

// `right` disappears into `left`; neither is in the free list.
Block* Pool::JoinLocked(Block* left, Block* right) {
  block_index_->Remove(right->Offset());
  left->size.store(left->Size() + right->Size(), std::memory_order_relaxed);
  left->free_sequence = std::max(left->free_sequence, right->free_sequence);
  left->next = right->next;
  if (right->next != nullptr) right->next->previous = left;
  block_index_->Insert(left);
  store_->Recycle(right);
  return left;
}

void Pool::GiveLocked(Block* block) {
  if (Block* left = block->previous; left != nullptr && left->State() == block_word::kFree) {
    Leave(left);
    block = JoinLocked(left, block);
  }
  if (Block* right = block->next; right != nullptr && right->State() == block_word::kFree) {
    Leave(right);
    block = JoinLocked(block, right);
  }
  Enter(block);
}

void Pool::Give(Block* list) {
  std::lock_guard<std::mutex> lock(mutex_);
  while (list != nullptr) {
    Block* block = list;
    list = block->link;
    GiveLocked(block);
  }
  ReportInactive();
}

std::vector<Segment*> Pool::ReleaseSegments(size_t min_size, size_t max_size, size_t limit) {
  std::vector<Segment*> released;
  const StreamClock* stream = clock();
  std::lock_guard<std::mutex> lock(mutex_);
  for (FreeSet* free : {&small_, &large_}) {
    for (auto it = free->lower_bound(min_size); it != free->end() && released.size() < limit;) {
      Block* block = *it;
      if (block->Size() > max_size) break;
      if (!IsWhole(*block) || (stream != nullptr && !stream->Passed(block->free_sequence))) {
        ++it;
        continue;
      }
      it = free->erase(it);
      Segment* segment = block->segment;
      block_index_->Remove(block->Offset());
      block_index_->RemoveSegment(*segment);
      store_->Recycle(block);
      segment->first = nullptr;
      released.push_back(segment);
    }
  }
  return released;
}

size_t Pool::FreeBytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = 0;
  for (const FreeSet* free : {&small_, &large_}) {
    for (const Block* block : *free) bytes += block->Size();
  }
  return bytes;
}

}  // namespace openreg
