#include "openreg/runtime/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace openreg {

void FreeRanges::Reset(size_t size, size_t unit) {
  unit_ = unit;
  std::lock_guard<std::mutex> lock(mutex_);
  free_.clear();
  size_ = size & ~(unit - 1);
  if (size_ > 0) free_[0] = size_;
}

bool FreeRanges::Take(size_t size, size_t* offset) {
  size = WholeUnits(size);
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

void FreeRanges::Give(size_t offset, size_t size) {
  size = WholeUnits(size);
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

size_t FreeRanges::Largest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

std::vector<std::pair<size_t, size_t>> FreeRanges::Taken() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::pair<size_t, size_t>> taken;
  size_t end = 0;  // of the free range before
  for (const auto& [offset, size] : free_) {
    if (offset > end) taken.emplace_back(end, offset - end);
    end = offset + size;
  }
  if (size_ > end) taken.emplace_back(end, size_ - end);
  return taken;
}

}  // namespace openreg
