#include "openreg/runtime/memory_stats.h"

namespace openreg {

template <class F>
void MemoryStats::ForEachGauge(F f) {
  for (Gauge* gauge :
       {&front_.allocation, &front_.allocated_bytes, &front_.requested_bytes, &front_.inactive,
        &front_.inactive_bytes, &segment_, &reserved_bytes_, &pending_, &pending_bytes_}) {
    f(gauge);
  }
}

// Active is allocated or pending; pending stands still between two calls.
void MemoryStats::UpdateActive(int64_t count_peak, int64_t bytes_peak) {
  active_peak_ = std::max(active_peak_, count_peak + pending_.current);
  active_bytes_peak_ = std::max(active_bytes_peak_, bytes_peak + pending_bytes_.current);
}

void MemoryStats::Merge(FrontStats* front) {
  std::lock_guard<std::mutex> lock(mutex_);
  UpdateActive(front_.allocation.current + front->allocation.peak,
               front_.allocated_bytes.current + front->allocated_bytes.peak);
  front_.allocation.Merge(&front->allocation);
  front_.allocated_bytes.Merge(&front->allocated_bytes);
  front_.requested_bytes.Merge(&front->requested_bytes);
  front_.inactive.Merge(&front->inactive);
  front_.inactive_bytes.Merge(&front->inactive_bytes);
}

void MemoryStats::Pending(int64_t count, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  pending_.Add(count);
  pending_bytes_.Add(bytes);
  UpdateActive(front_.allocation.current, front_.allocated_bytes.current);
}

void MemoryStats::Inactive(int64_t count, int64_t bytes) {
  if (count == 0 && bytes == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  front_.inactive.Add(count);
  front_.inactive_bytes.Add(bytes);
}

void MemoryStats::SegmentTaken(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  segment_.Add(1);
  reserved_bytes_.Add(bytes);
  ++device_alloc_;
}

void MemoryStats::SegmentReturned(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  segment_.Add(-1);
  reserved_bytes_.Add(-bytes);
  ++device_free_;
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
  stats->allocation = front_.allocation.Read();
  stats->allocatedBytes = front_.allocated_bytes.Read();
  stats->requestedBytes = front_.requested_bytes.Read();
  stats->inactiveSplit = front_.inactive.Read();
  stats->inactiveSplitBytes = front_.inactive_bytes.Read();
  stats->segment = segment_.Read();
  stats->reservedBytes = reserved_bytes_.Read();
  // A block that went from allocated to pending has not left; one whose pending ended has.
  stats->active = {front_.allocation.current + pending_.current, active_peak_, front_.allocation.up,
                   front_.allocation.down - pending_.up + pending_.down};
  stats->activeBytes = {front_.allocated_bytes.current + pending_bytes_.current, active_bytes_peak_,
                        front_.allocated_bytes.up,
                        front_.allocated_bytes.down - pending_bytes_.up + pending_bytes_.down};
  stats->numAllocRetries = retries_;
  stats->numOoms = refused_;
  stats->numSyncAllStreams = 0;  // this allocator never waits for streams
  stats->numDeviceAlloc = device_alloc_;
  stats->numDeviceFree = device_free_;
}

void MemoryStats::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  ForEachGauge([](Gauge* gauge) { gauge->peak = gauge->current; });
  active_peak_ = front_.allocation.current + pending_.current;
  active_bytes_peak_ = front_.allocated_bytes.current + pending_bytes_.current;
}

void MemoryStats::ResetAccumulated() {
  std::lock_guard<std::mutex> lock(mutex_);
  ForEachGauge([](Gauge* gauge) { gauge->up = gauge->down = 0; });
  retries_ = refused_ = device_alloc_ = device_free_ = 0;
}

}  // namespace openreg
