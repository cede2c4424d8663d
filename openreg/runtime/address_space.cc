#include "openreg/runtime/address_space.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace openreg {
namespace {

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer leaves 1.5 TiB for mappings (tsan_platform.h).
constexpr size_t kLargestHalf = size_t{256} << 30;
#else
constexpr size_t kLargestHalf = size_t{16} << 40;
#endif
constexpr size_t kSmallestHalf = size_t{64} << 20;

// What one may still map under RLIMIT_AS.
size_t AddressSpaceLeft() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  size_t used = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<size_t>(limit.rlim_cur, used);
}

void* MapInaccessible(void* at, size_t size, int extra_flags) {
  void* result =
      mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0);
  if (result == MAP_FAILED) return nullptr;
  madvise(result, size, MADV_DONTDUMP);
  madvise(result, size, MADV_DONTFORK);
  return result;
}

}  // namespace

Status AddressSpace::Reserve() {
  // Half of what is left stays with the program.
  size_t budget = AddressSpaceLeft() / 2;
  for (size_t half = kLargestHalf; half >= kSmallestHalf; half /= 2) {
    if (2 * half > budget) continue;
    void* base = MapInaccessible(nullptr, 2 * half, 0);
    if (base == nullptr) continue;
    base_ = static_cast<char*>(base);
    half_ = half;
    granule_shift_ = __builtin_ctzll(half) - kSlotCountShift;
    granule_shift_ = std::max(granule_shift_, 16);
    free_.Reset(half, granule());
    return Status();
  }
  return Status(
      orErrorInitializationError,
      Format("cannot reserve %zu MiB of address space for device memory (%zu MiB are left "
             "under the limit): raise `ulimit -v`",
             2 * kSmallestHalf >> 20, AddressSpaceLeft() >> 20));
}

Status AddressSpace::Map(int fd, size_t size, Region** region) {
  size_t offset;
  if (!free_.Take(Span(size), &offset)) {
    return Status(orErrorMapBufferObject,
                  Format("no room for a region of %zu MiB in the %zu MiB of addresses reserved for "
                         "device memory",
                         size >> 20, half_ >> 20));
  }
  size_t color = next_color_.fetch_add(1, std::memory_order_relaxed) % kColors;
  char* device_base = base_ + offset + (colored() ? color * kColorBytes : 0);
  void* kernel = mmap(device_base + half_, size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (kernel == MAP_FAILED) {
    int error = errno;
    free_.Give(offset, Span(size));
    return Status(orErrorMapBufferObject, Format("mmap of %zu MiB of device memory failed: %s",
                                                 size >> 20, strerrordesc_np(error)));
  }
  madvise(kernel, size, MADV_DONTDUMP);
  madvise(kernel, size, MADV_DONTFORK);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (recycled_.empty()) {
      recycled_.reserve(regions_.size() + 1);  // Unmap allocates nothing
      *region = &regions_.emplace_back();
    } else {
      *region = recycled_.back();
      recycled_.pop_back();
    }
  }
  **region = Region{};
  (*region)->device_base = device_base;
  (*region)->size = size;
  return Status();
}

void AddressSpace::Publish(Region* region) {
  size_t first = OffsetOf(*region) >> granule_shift_;
  size_t count = Span(region->size) >> granule_shift_;
  for (size_t i = 0; i < count; ++i) slots_[first + i].store(region, std::memory_order_release);
}

void AddressSpace::Unmap(Region* region) {
  size_t offset = OffsetOf(*region);
  size_t rounded = Span(region->size);
  for (size_t i = offset >> granule_shift_; i < (offset + rounded) >> granule_shift_; ++i) {
    slots_[i].store(nullptr, std::memory_order_release);
  }
  MapInaccessible(region->device_base + half_, region->size, MAP_FIXED);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    recycled_.push_back(region);
  }
  free_.Give(offset, rounded);
}

}  // namespace openreg
