#include "openreg/runtime/page_heap.h"

#include <algorithm>
#include <iterator>

#include "openreg/runtime/block.h"

namespace openreg {
namespace {
size_t WholeChunks(size_t size) { return (size + kChunk - 1) >> kChunkShift << kChunkShift; }
}  // namespace

PageHeap::PageHeap(size_t size) { free_[0] = size >> kChunkShift << kChunkShift; }

bool PageHeap::Allocate(size_t size, size_t* offset) {
  size = WholeChunks(size);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    *offset = it->first;
    size_t left = it->second - size;
    it = free_.erase(it);
    if (left > 0) free_.emplace_hint(it, *offset + size, left);
    return true;
  }
  return false;
}

void PageHeap::Free(size_t offset, size_t size) {
  size = WholeChunks(size);
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_.emplace_hint(next, offset, size);
}

size_t PageHeap::LargestFree() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

}  // namespace openreg
