#include "python/csrc/runtime/memory.h"

#include <algorithm>
#include <array>

#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

using c10::CachingAllocator::format_size;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

c10::Device openreg_device(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }

orMemStats read_stats(c10::DeviceIndex device) {
  orMemStats stats{};
  stats.structSize = sizeof(stats);
  OR_CHECK(orMemGetStats(device, &stats));
  return stats;
}

std::pair<std::size_t, std::size_t> read_memory_info(c10::DeviceIndex device) {
  const DeviceScope scope(device);
  std::size_t free = 0;
  std::size_t total = 0;
  OR_CHECK(orMemGetInfo(&free, &total));
  return {free, total};
}

[[noreturn]] void throw_out_of_memory(std::size_t nbytes, c10::DeviceIndex device) {
  const std::string detail = orGetLastErrorMessage();
  const auto [free, total] = read_memory_info(device);
  const orMemStats stats = read_stats(device);
  const auto allocated = static_cast<std::uint64_t>(stats.all.allocatedBytes.current);
  const auto reserved = static_cast<std::uint64_t>(stats.all.reservedBytes.current);
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(nbytes), allocated, reserved,
                                   openreg_device(device));
  throw c10::OutOfMemoryError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("openreg out of memory. Tried to allocate ", format_size(nbytes),
               ". openreg:", static_cast<int>(device), " has a total capacity of ",
               format_size(total), " (shared by all openreg devices of this process) of which ",
               format_size(free), " is free. Of the allocated memory ", format_size(allocated),
               " is allocated by PyTorch, and ",
               format_size(reserved > allocated ? reserved - allocated : 0),
               " is reserved by PyTorch but unallocated. The limit is OPENREG_DEVICE_MEMORY, or "
               "torch.openreg.set_per_process_memory_fraction. ",
               detail));
}

void report_to_profiler(void* ptr, std::int64_t nbytes, c10::DeviceIndex device) {
  const orMemStats stats = read_stats(device);
  c10::reportMemoryUsageToProfiler(
      ptr, nbytes, static_cast<std::size_t>(stats.all.allocatedBytes.current),
      static_cast<std::size_t>(stats.all.reservedBytes.current), openreg_device(device));
}

// The deleter of every block: stream-ordered, never blocks, never throws. A forked child only
// drops its copy of the pointer: the memory is its parent's.
void delete_block(void* ptr) {
  if (in_bad_fork()) {
    return;
  }
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    orPointerAttributes attributes;
    if (orPointerGetAttributes(&attributes, ptr) == orSuccess) {
      report_to_profiler(ptr, -static_cast<std::int64_t>(attributes.size),
                         static_cast<c10::DeviceIndex>(attributes.device));
    }
  }
  sanitizer::freed(ptr);
  OR_WARN(orFreeAsync(ptr));
}

void release_block(void* ptr) {
  if (!in_bad_fork()) {
    OR_WARN(orMemRelease(ptr));
  }
}

StatArray stat(const orMemStats& from, orMemStat orMemPoolStats::* which) {
  StatArray to{};
  const auto set = [&](StatType type, const orMemPoolStats& pool) {
    auto& stat = to[static_cast<std::size_t>(type)];
    const orMemStat& value = pool.*which;
    stat.current = value.current;
    stat.peak = value.peak;
    stat.allocated = value.allocated;
    stat.freed = value.freed;
  };
  set(StatType::AGGREGATE, from.all);
  set(StatType::SMALL_POOL, from.smallPool);
  set(StatType::LARGE_POOL, from.largePool);
  return to;
}

class OpenregAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override {
    return torch_openreg::allocate(nbytes, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    const OpenregStream stream = current_stream();
    sanitizer::raw_copy("copy_data", stream, dest, src, count);
    OR_CHECK(orMemcpyAsync(dest, src, count, orMemcpyDeviceToDevice, stream.handle));
  }

  bool initialized() override { return is_initialized(); }

  void emptyCache(c10::MempoolId_t /*mempool_id*/) override {
    if (!is_initialized()) {
      return;
    }
    reap_finished();
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      OR_CHECK(orMemEmptyCache(device));
    }
  }

  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    // Memory that came from elsewhere (IPC imports) is not this allocator's to reuse.
    if (ptr.get() != nullptr && ptr.get_deleter() == &delete_block) {
      OR_CHECK(orMemRecordStream(ptr.get(), OpenregStream::from(stream).handle));
      sanitizer::stream_recorded(ptr.get(), stream);
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats to;
    device = resolve_device(device);
    if (!is_initialized()) {
      return to;
    }
    reap_finished();
    const orMemStats from = read_stats(device);
    to.allocation = stat(from, &orMemPoolStats::allocation);
    to.segment = stat(from, &orMemPoolStats::segment);
    to.active = stat(from, &orMemPoolStats::active);
    to.inactive_split = stat(from, &orMemPoolStats::inactiveSplit);
    to.allocated_bytes = stat(from, &orMemPoolStats::allocatedBytes);
    to.reserved_bytes = stat(from, &orMemPoolStats::reservedBytes);
    to.active_bytes = stat(from, &orMemPoolStats::activeBytes);
    to.inactive_split_bytes = stat(from, &orMemPoolStats::inactiveSplitBytes);
    to.requested_bytes = stat(from, &orMemPoolStats::requestedBytes);
    to.num_alloc_retries = from.numAllocRetries;
    to.num_ooms = from.numOoms;
    to.num_sync_all_streams = from.numSyncAllStreams;
    to.num_device_alloc = from.numDeviceAlloc;
    to.num_device_free = from.numDeviceFree;
    to.max_split_size = -1;  // no limit, as torch's other allocators print it
    return to;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    device = resolve_device(device);
    if (is_initialized()) {
      OR_CHECK(orMemResetAccumulatedStats(device));
    }
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    device = resolve_device(device);
    if (is_initialized()) {
      OR_CHECK(orMemResetPeakStats(device));
    }
  }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    ensure_initialized();
    return read_memory_info(resolve_device(device));
  }
};

}  // namespace

bool is_device_ptr(const void* ptr) {
  if (!is_initialized()) {
    return false;
  }
  // Own arenas are reserved once, at initialisation, and never move.
  static const std::vector<orArenaInfo> arenas = [] {
    std::vector<orArenaInfo> all(static_cast<std::size_t>(device_count()));
    for (std::size_t device = 0; device < all.size(); ++device) {
      OR_CHECK(orDeviceGetArena(static_cast<int>(device), &all[device]));
    }
    return all;
  }();
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  for (const orArenaInfo& arena : arenas) {
    if (address - reinterpret_cast<std::uintptr_t>(arena.deviceBase) < arena.size) {
      return true;
    }
  }
  orPointerAttributes attributes;
  return orPointerGetAttributes(&attributes, ptr) == orSuccess &&
         attributes.type == orMemoryTypeDevice;
}

c10::Device device_of_ptr(const void* ptr) {
  ensure_initialized();
  orPointerAttributes attributes;
  OR_CHECK(orPointerGetAttributes(&attributes, ptr));
  TORCH_CHECK(attributes.type == orMemoryTypeDevice, "expected a pointer to openreg memory, got ",
              ptr, ", which is host memory");
  return openreg_device(static_cast<c10::DeviceIndex>(attributes.device));
}

c10::DeviceAllocator* device_allocator() {
  static auto* allocator = new OpenregAllocator;
  return allocator;
}

c10::DataPtr hold_block(const c10::DataPtr& data) {
  if (data.get() == nullptr || data.get_deleter() != &delete_block) {
    return {};
  }
  OR_CHECK(orMemRetain(data.get_context()));
  return {data.get(), data.get_context(), &release_block, data.device()};
}

void* allocate_raw(std::size_t nbytes, const OpenregStream& stream) {
  void* ptr = nullptr;
  const orError_t error = orMallocAsync(&ptr, nbytes, stream.handle);
  if (error != orSuccess) [[unlikely]] {
    if (error == orErrorMemoryAllocation) {
      throw_out_of_memory(nbytes, stream.device);
    }
    throw_error(error, "orMallocAsync");
  }
  sanitizer::allocated(ptr, nbytes, stream);
  return ptr;
}

c10::DataPtr allocate(std::size_t nbytes, c10::DeviceIndex device) {
  ensure_initialized();
  reap_finished();
  if (nbytes == 0) {
    return {nullptr, openreg_device(device)};
  }
  void* ptr = allocate_raw(nbytes, current_stream(device));
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(ptr, static_cast<std::int64_t>(nbytes), device);
  }
  return {ptr, ptr, &delete_block, openreg_device(device)};
}

void resize_storage(c10::StorageImpl* storage, std::size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::Device device = storage->device();
  c10::DataPtr block = allocate(nbytes, device.index());
  const std::size_t kept = std::min(nbytes, storage->nbytes());
  if (kept != 0 && storage->data() != nullptr) {
    const OpenregStream stream = current_stream(device.index());
    // The old block is freed below: its allocator has to know that this stream still reads it.
    device_allocator()->recordStream(storage->data_ptr(), stream);
    sanitizer::raw_copy("resize_", stream, block.get(), storage->data(), kept);
    OR_CHECK(
        orMemcpyAsync(block.get(), storage->data(), kept, orMemcpyDeviceToDevice, stream.handle));
  }
  storage->set_data_ptr_noswap(std::move(block));
  storage->set_nbytes(nbytes);
}

}  // namespace torch_openreg
