// The one stretch of addresses in which all device memory of the process lies, own and imported:
//
//   base                    base + half                  base + 2 * half
//     | device ranges: never accessible | kernel ranges: read/write, at + half |
//
// so that one constant leads from every device pointer to the bytes. It is reserved once, without
// memory behind it. Regions (an arena of this process, or of a peer) are placed in it one to a run
// of granules, which makes finding the region of a pointer one table look-up without a lock.
//
// Where granules are large, each region begins a little further into its first one than the last
// region did. AMD processors predict the way of the first-level cache from a hash of address bits
// 12 to 27 (Lipp et al., "Take A Way", 2020), so two arenas that differ in higher bits only would
// evict each other wherever ranks use the same offsets: a sum of both then runs at half speed.
#ifndef OPENREG_RUNTIME_ADDRESS_SPACE_H_
#define OPENREG_RUNTIME_ADDRESS_SPACE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "openreg/runtime/free_ranges.h"
#include "openreg/runtime/status.h"

namespace openreg {

class BlockAllocator;
class ImportedArena;

// An arena in the address space. Constant while it is published; recycled after Unmap, never freed
// before the address space.
struct Region {
  char* device_base = nullptr;
  size_t size = 0;
  int device = -1;                      // index on the owner's side
  BlockAllocator* allocator = nullptr;  // of an own arena
  ImportedArena* imported = nullptr;    // of a peer's arena
};

class AddressSpace {
 public:
  // Reserves the addresses: 32 TiB if it can, less under RLIMIT_AS or a sanitizer that leaves less.
  Status Reserve();

  ptrdiff_t delta() const { return static_cast<ptrdiff_t>(half_); }
  bool Contains(const void* ptr) const {
    return static_cast<size_t>(static_cast<const char*>(ptr) - base_) < half_;
  }
  // True for kernel-range addresses.
  bool ContainsKernel(const void* ptr) const {
    return static_cast<size_t>(static_cast<const char*>(ptr) - base_) - half_ < half_;
  }

  // The largest region that Map could place now.
  size_t LargestFree() const { return free_.Largest(); }

  // Maps `size` bytes of `fd` into the kernel half and returns a region for them, not yet found by
  // Find; size is a multiple of the page size. Errors: orErrorMapBufferObject.
  Status Map(int fd, size_t size, Region** region);
  // From now on Find knows the region; its fields may not change any more.
  void Publish(Region* region);
  // Takes the region away: its addresses fault again and may be given to another region.
  void Unmap(Region* region);

  // The region that contains the device address, or NULL. Lock-free.
  Region* Find(const void* ptr) const {
    size_t offset = static_cast<size_t>(static_cast<const char*>(ptr) - base_);
    if (offset >= half_) return nullptr;
    Region* region = slots_[offset >> granule_shift_].load(std::memory_order_acquire);
    if (region == nullptr) return nullptr;
    return static_cast<size_t>(static_cast<const char*>(ptr) - region->device_base) < region->size
               ? region
               : nullptr;
  }

 private:
  static constexpr int kSlotCountShift = 14;
  static constexpr size_t kSlotCount = size_t{1} << kSlotCountShift;

  // Multiples of 2 MB, so that huge pages stay possible.
  static constexpr size_t kColorBytes = size_t{2} << 20;
  static constexpr size_t kColors = 63;

  size_t granule() const { return size_t{1} << granule_shift_; }
  bool colored() const { return granule() > kColors * kColorBytes; }
  // The run of granules that a region of this size takes.
  size_t Span(size_t size) const {
    return RoundUp(size + (colored() ? (kColors - 1) * kColorBytes : 0));
  }
  // Where the run of a region begins.
  size_t OffsetOf(const Region& region) const {
    return static_cast<size_t>(region.device_base - base_) >> granule_shift_ << granule_shift_;
  }
  size_t RoundUp(size_t size) const {
    return (size + (size_t{1} << granule_shift_) - 1) >> granule_shift_ << granule_shift_;
  }

  char* base_ = nullptr;  // constant after Reserve, as the next two
  size_t half_ = 0;
  int granule_shift_ = 0;
  std::array<std::atomic<Region*>, kSlotCount> slots_{};

  std::atomic<size_t> next_color_{0};
  FreeRanges free_;   // granules that no region takes
  std::mutex mutex_;  // guards the others
  std::deque<Region> regions_;
  std::vector<Region*> recycled_;  // of regions_, those unmapped
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_ADDRESS_SPACE_H_
