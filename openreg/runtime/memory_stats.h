// Counting for orMemGetStats. Front caches count for themselves, under their own lock, and are
// merged into the totals now and then; with one thread allocating, peaks are exact, with several a
// peak may miss up to kMergeBytes for each front cache.
#ifndef OPENREG_RUNTIME_MEMORY_STATS_H_
#define OPENREG_RUNTIME_MEMORY_STATS_H_

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "openreg/api/openreg.h"

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

// The counts that change with every allocation.
struct FrontStats {
  static constexpr int64_t kMergeBytes = int64_t{1} << 20;

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
  void Cached(int64_t size) {
    inactive.Add(1);
    inactive_bytes.Add(size);
  }
  void Uncached(int64_t size) {
    inactive.Add(-1);
    inactive_bytes.Add(-size);
  }
  bool MergeDue() const {
    return allocated_bytes.current > kMergeBytes || allocated_bytes.current < -kMergeBytes ||
           allocated_bytes.peak > kMergeBytes;
  }
};

// Totals of one device. Every method locks.
class MemoryStats {
 public:
  void Merge(FrontStats* front);
  // A block was freed but is still used (+1), or that ended (-1).
  void Pending(int64_t count, int64_t bytes);
  // Free blocks of split segments in the pools.
  void Inactive(int64_t count, int64_t bytes);
  void SegmentTaken(int64_t bytes);
  void SegmentReturned(int64_t bytes);
  void Retried();
  void Refused();

  // Everything but stats->structSize.
  void Read(orMemStats* stats);
  void ResetPeaks();
  void ResetAccumulated();

 private:
  template <class F>
  void ForEachGauge(F f);
  void UpdateActive(int64_t count_peak, int64_t bytes_peak);

  std::mutex mutex_;  // guards everything below
  FrontStats front_;
  Gauge segment_, reserved_bytes_;
  Gauge pending_, pending_bytes_;
  int64_t active_peak_ = 0, active_bytes_peak_ = 0;
  int64_t retries_ = 0, refused_ = 0, device_alloc_ = 0, device_free_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_MEMORY_STATS_H_
