// Counting for orMemGetStats, for small and large allocations apart (their segments are apart, too)
// and for both together. Front caches count for themselves, under their own lock, and are merged
// into the totals now and then; with one thread allocating, peaks are exact, with several a peak
// may miss up to kMergeBytes for each front cache.
#ifndef OPENREG_RUNTIME_MEMORY_STATS_H_
#define OPENREG_RUNTIME_MEMORY_STATS_H_

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "openreg/api/openreg.h"
#include "openreg/runtime/block.h"

namespace openreg {

struct Gauge {
  int64_t current = 0, peak = 0, up = 0, down = 0;

  void Add(int64_t amount) {
    current += amount;
    if (amount > 0) {
      up += amount;
      peak = std::max(peak, current);
    } else {
      down -= amount;
    }
  }
  // Takes over what `part` counted since its last merge, and resets it.
  void Merge(Gauge* part) {
    peak = std::max(peak, current + part->peak);
    current += part->current;
    up += part->up;
    down += part->down;
    *part = Gauge{};
  }
  orMemStat Read() const { return {current, peak, up, down}; }
};

// The counts that change with every allocation, of one kind of them.
struct FrontCounts {
  Gauge allocation, allocated_bytes, requested_bytes;
  Gauge inactive, inactive_bytes;  // blocks in the front cache

  void Allocated(int64_t size, int64_t requested) {
    allocation.Add(1);
    allocated_bytes.Add(size);
    requested_bytes.Add(requested);
  }
  void Freed(int64_t size, int64_t requested) {
    allocation.Add(-1);
    allocated_bytes.Add(-size);
    requested_bytes.Add(-requested);
  }
  void Cached(int64_t count, int64_t bytes) {
    inactive.Add(count);
    inactive_bytes.Add(bytes);
  }
  void Merge(FrontCounts* part) {
    allocation.Merge(&part->allocation);
    allocated_bytes.Merge(&part->allocated_bytes);
    requested_bytes.Merge(&part->requested_bytes);
    inactive.Merge(&part->inactive);
    inactive_bytes.Merge(&part->inactive_bytes);
  }
};

struct FrontStats {
  static constexpr int64_t kMergeBytes = int64_t{1} << 20;

  FrontCounts all, small, large;

  FrontCounts& OfKind(const Block& block) { return block.small ? small : large; }
  void Allocated(const Block& block, int64_t requested) {
    auto size = static_cast<int64_t>(block.Size());
    all.Allocated(size, requested);
    OfKind(block).Allocated(size, requested);
  }
  void Freed(const Block& block) {
    auto size = static_cast<int64_t>(block.Size());
    auto requested = static_cast<int64_t>(block.requested.load(std::memory_order_relaxed));
    all.Freed(size, requested);
    OfKind(block).Freed(size, requested);
  }
  void Cached(const Block& block) {
    auto size = static_cast<int64_t>(block.Size());
    all.Cached(1, size);
    OfKind(block).Cached(1, size);
  }
  void Uncached(const Block& block) {
    auto size = static_cast<int64_t>(block.Size());
    all.Cached(-1, -size);
    OfKind(block).Cached(-1, -size);
  }
  bool MergeDue() const {
    return all.allocated_bytes.current > kMergeBytes ||
           all.allocated_bytes.current < -kMergeBytes || all.allocated_bytes.peak > kMergeBytes;
  }
};

// The totals of one kind of allocations. Not synchronised.
class PoolTotals {
 public:
  void Merge(FrontCounts* front);
  void Pending(int64_t count, int64_t bytes);
  void Inactive(int64_t count, int64_t bytes) { front_.Cached(count, bytes); }
  void Segment(int64_t count, int64_t bytes) {
    segment_.Add(count);
    reserved_bytes_.Add(bytes);
  }

  orMemPoolStats Read() const;
  void ResetPeaks();
  void ResetAccumulated();

 private:
  template <class F>
  void ForEachGauge(F f);
  void UpdateActive(int64_t count_peak, int64_t bytes_peak);

  FrontCounts front_;
  Gauge segment_, reserved_bytes_;
  Gauge pending_, pending_bytes_;
  int64_t active_peak_ = 0, active_bytes_peak_ = 0;
};

// Totals of one device. Every method locks. `small` tells the kind.
class MemoryStats {
 public:
  void Merge(FrontStats* front);
  // A block was freed but is still used (+1), or that ended (-1).
  void Pending(bool small, int64_t count, int64_t bytes);
  // Free blocks of split segments in the pools.
  void Inactive(bool small, int64_t count, int64_t bytes);
  void SegmentTaken(bool small, int64_t bytes);
  void SegmentReturned(bool small, int64_t bytes);
  // A segment serves the other kind from now on.
  void SegmentChanged(bool small, int64_t bytes);
  void Retried();
  void Refused();

  // Everything but stats->structSize.
  void Read(orMemStats* stats);
  void ResetPeaks();
  void ResetAccumulated();

 private:
  PoolTotals& OfKind(bool small) { return small ? small_ : large_; }

  std::mutex mutex_;  // guards everything below
  PoolTotals all_, small_, large_;
  int64_t retries_ = 0, refused_ = 0, device_alloc_ = 0, device_free_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_MEMORY_STATS_H_
