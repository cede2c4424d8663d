#include "openreg/runtime/memory_stats.h"

namespace openreg {

// ---------------------------------------------------------------------------- PoolTotals

template <class F>
void PoolTotals::ForEachGauge(F f) {
  for (Gauge* gauge :
       {&front_.allocation, &front_.allocated_bytes, &front_.requested_bytes, &front_.inactive,
        &front_.inactive_bytes, &segment_, &reserved_bytes_, &pending_, &pending_bytes_}) {
    f(gauge);
  }
}

// Active is allocated or pending; pending stands still between two calls.
void PoolTotals::UpdateActive(int64_t count_peak, int64_t bytes_peak) {
  active_peak_ = std::max(active_peak_, count_peak + pending_.current);
  active_bytes_peak_ = std::max(active_bytes_peak_, bytes_peak + pending_bytes_.current);
}

void PoolTotals::Merge(FrontCounts* front) {
  UpdateActive(front_.allocation.current + front->allocation.peak,
               front_.allocated_bytes.current + front->allocated_bytes.peak);
  front_.Merge(front);
}

void PoolTotals::Pending(int64_t count, int64_t bytes) {
  pending_.Add(count);
  pending_bytes_.Add(bytes);
  UpdateActive(front_.allocation.current, front_.allocated_bytes.current);
}

orMemPoolStats PoolTotals::Read() const {
  orMemPoolStats stats;
  stats.allocation = front_.allocation.Read();
  stats.allocatedBytes = front_.allocated_bytes.Read();
  stats.requestedBytes = front_.requested_bytes.Read();
  stats.inactiveSplit = front_.inactive.Read();
  stats.inactiveSplitBytes = front_.inactive_bytes.Read();
  stats.segment = segment_.Read();
  stats.reservedBytes = reserved_bytes_.Read();
  // A block that went from allocated to pending has not left; one whose pending ended has.
  stats.active = {front_.allocation.current + pending_.current, active_peak_, front_.allocation.up,
                  front_.allocation.down - pending_.up + pending_.down};
  stats.activeBytes = {front_.allocated_bytes.current + pending_bytes_.current, active_bytes_peak_,
                       front_.allocated_bytes.up,
                       front_.allocated_bytes.down - pending_bytes_.up + pending_bytes_.down};
  return stats;
}

void PoolTotals::ResetPeaks() {
  ForEachGauge([](Gauge* gauge) { gauge->peak = gauge->current; });
  active_peak_ = front_.allocation.current + pending_.current;
  active_bytes_peak_ = front_.allocated_bytes.current + pending_bytes_.current;
}

void PoolTotals::ResetAccumulated() {
  ForEachGauge([](Gauge* gauge) { gauge->up = gauge->down = 0; });
}

// ---------------------------------------------------------------------------- MemoryStats

void MemoryStats::Merge(FrontStats* front) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.Merge(&front->all);
  small_.Merge(&front->small);
  large_.Merge(&front->large);
}

void MemoryStats::Pending(bool small, int64_t count, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.Pending(count, bytes);
  OfKind(small).Pending(count, bytes);
}

void MemoryStats::Inactive(bool small, int64_t count, int64_t bytes) {
  if (count == 0 && bytes == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  all_.Inactive(count, bytes);
  OfKind(small).Inactive(count, bytes);
}

void MemoryStats::SegmentTaken(bool small, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.Segment(1, bytes);
  OfKind(small).Segment(1, bytes);
  ++device_alloc_;
}

void MemoryStats::SegmentReturned(bool small, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.Segment(-1, -bytes);
  OfKind(small).Segment(-1, -bytes);
  ++device_free_;
}

void MemoryStats::SegmentChanged(bool small, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  OfKind(!small).Segment(-1, -bytes);
  OfKind(small).Segment(1, bytes);
}

void MemoryStats::Retried() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++retries_;
}

void MemoryStats::Refused() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++refused_;
}

void MemoryStats::Read(orMemStats* stats) {
  std::lock_guard<std::mutex> lock(mutex_);
  stats->all = all_.Read();
  stats->smallPool = small_.Read();
  stats->largePool = large_.Read();
  stats->numAllocRetries = retries_;
  stats->numOoms = refused_;
  stats->numSyncAllStreams = 0;  // this allocator never waits for streams
  stats->numDeviceAlloc = device_alloc_;
  stats->numDeviceFree = device_free_;
}

void MemoryStats::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (PoolTotals* totals : {&all_, &small_, &large_}) totals->ResetPeaks();
}

void MemoryStats::ResetAccumulated() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (PoolTotals* totals : {&all_, &small_, &large_}) totals->ResetAccumulated();
  retries_ = refused_ = device_alloc_ = device_free_ = 0;
}

}  // namespace openreg
