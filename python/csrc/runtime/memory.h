// Device memory as torch sees it: where a kernel finds it, and who allocates it.
#ifndef PYTHON_CSRC_RUNTIME_MEMORY_H_
#define PYTHON_CSRC_RUNTIME_MEMORY_H_

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openreg/api/openreg.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

namespace detail {
// Written once by ensure_initialized(), before any device pointer can exist; relaxed is enough,
// because whoever holds a device pointer got it through something that synchronises.
extern std::atomic<std::ptrdiff_t> kernel_delta;
}  // namespace detail

// Where a kernel finds the byte at `device_ptr` (of any device of this process, imported ones
// included). nullptr stays nullptr. Not checked: is_device_ptr tells whether it may be called.
inline void* kernel_ptr(const void* device_ptr) {
  if (device_ptr == nullptr) {
    return nullptr;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(device_ptr);
  const auto delta = detail::kernel_delta.load(std::memory_order_relaxed);
  return reinterpret_cast<void*>(address + static_cast<std::uintptr_t>(delta));
}

// The inverse of kernel_ptr.
inline void* device_ptr(const void* kernel_address) {
  if (kernel_address == nullptr) {
    return nullptr;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(kernel_address);
  const auto delta = detail::kernel_delta.load(std::memory_order_relaxed);
  return reinterpret_cast<void*>(address - static_cast<std::uintptr_t>(delta));
}

// True if `ptr` lies in the device range of this process (own arenas: two compares a device;
// imported memory: a call of the runtime).
bool is_device_ptr(const void* ptr);
// The device that owns `ptr`; throws torch.AcceleratorError if it is no live device memory.
c10::Device device_of_ptr(const void* ptr);

// The allocator registered for PrivateUse1: stream-ordered and caching (the runtime's), memory for
// the current stream of the current device. Thread-safe, does not block. Throws
// c10::OutOfMemoryError with the usual figures.
c10::DeviceAllocator* device_allocator();

// `nbytes` for the current stream of `device` (not of the current device). A DataPtr whose deleter
// is stream-ordered too. nbytes == 0 gives a null DataPtr on that device.
c10::DataPtr allocate(std::size_t nbytes, c10::DeviceIndex device);

// The block of `data` for as long as the result lives, whose owner is told nothing of it: to the
// sanitizer the block is freed when the owner drops it, though it is not handed out again before.
// Empty if `data` is no block of the allocator.
c10::DataPtr hold_block(const c10::DataPtr& data);

// As above for any stream, without an owner: orFreeAsync frees it.
void* allocate_raw(std::size_t nbytes, const OpenregStream& stream);

// Tensor.resize_ and UntypedStorage.resize_: gives `storage` a new block of `nbytes` bytes, with
// min(old, new) bytes copied, stream-ordered on the current stream of its device.
void resize_storage(c10::StorageImpl* storage, std::size_t nbytes);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_MEMORY_H_
