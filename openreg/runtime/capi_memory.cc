// Device memory, pinned memory, pointers, copies.
#include <cstddef>

#include "openreg/runtime/capi_error.h"
#include "openreg/runtime/copy.h"
#include "openreg/runtime/faults.h"
#include "openreg/runtime/streaming_copy.h"

using openreg::BlockAllocator;
using openreg::Copy;
using openreg::current_device;
using openreg::Enter;
using openreg::Faults;
using openreg::Format;
using openreg::PointerInfo;
using openreg::Pool;
using openreg::Region;
using openreg::Runtime;
using openreg::Status;
using openreg::Stream;

namespace {

Status CheckSize(size_t size) {
  // A negative number in an unsigned type, or nonsense.
  if (size <= static_cast<size_t>(PTRDIFF_MAX)) return Status();
  return openreg::InvalidValue(
      Format("size: expected at most %td bytes, got %zu", PTRDIFF_MAX, size));
}

// The allocator that owns a device address.
Status OwnerOf(Runtime& runtime, const void* ptr, BlockAllocator** allocator) {
  const Region* region = runtime.space().Find(ptr);
  if (region != nullptr && region->allocator != nullptr) {
    *allocator = region->allocator;
    return Status();
  }
  const char* what = "no address of device memory";
  if (region != nullptr) {
    what = "memory of another process";
  } else if (runtime.space().Contains(ptr)) {
    what = "an address where no memory is";
  } else if (runtime.space().ContainsKernel(ptr)) {
    what = "a kernel-range address";
  }
  return Status(orErrorInvalidDevicePointer,
                Format("expected a pointer from orMalloc or orMallocAsync, got %p: %s", ptr, what));
}

template <class F>
orError_t WithAllocator(int device, F&& body) {
  return Enter([&](Runtime& runtime) -> Status {
    BlockAllocator* allocator;
    OPENREG_RETURN_IF_ERROR(runtime.GetAllocator(device, &allocator));
    return body(*allocator);
  });
}

// Runs body(BlockAllocator&) with the owner of the memory.
template <class F>
orError_t WithOwner(void* ptr, F&& body) {
  return Enter([&](Runtime& runtime) -> Status {
    BlockAllocator* allocator;
    OPENREG_RETURN_IF_ERROR(OwnerOf(runtime, ptr, &allocator));
    return body(*allocator);
  });
}

// Moves bytes in the default stream's turn, then reports what earlier work left there.
template <class F>
Status OnDefaultStream(Runtime& runtime, F&& body) {
  Stream* stream;
  OPENREG_RETURN_IF_ERROR(runtime.GetStream(nullptr, current_device, &stream));
  OPENREG_RETURN_IF_ERROR(body(stream));
  return stream->HeldByMe() ? Status() : stream->TakeError();
}

}  // namespace

extern "C" {

orError_t orMalloc(void** ptr, size_t size) {
  return WithAllocator(current_device, [&](BlockAllocator& allocator) -> Status {
    OPENREG_CHECK_OUT(ptr);
    OPENREG_RETURN_IF_ERROR(CheckSize(size));
    if (size == 0) {
      *ptr = nullptr;
      return Status();
    }
    OPENREG_RETURN_IF_ERROR(Faults::BeforeAllocation(size));
    return allocator.Allocate(size, allocator.PoolFor(nullptr), ptr);
  });
}

orError_t orFree(void* ptr) {
  if (ptr == nullptr) return orSuccess;
  return WithOwner(
      ptr, [&](BlockAllocator& allocator) { return allocator.Free(ptr, /*everywhere=*/true); });
}

orError_t orMallocAsync(void** ptr, size_t size, orStream_t handle) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(ptr);
    OPENREG_RETURN_IF_ERROR(CheckSize(size));
    Stream* stream;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    if (size == 0) {
      *ptr = nullptr;
      return Status();
    }
    OPENREG_RETURN_IF_ERROR(Faults::BeforeAllocation(size));
    BlockAllocator* allocator;
    OPENREG_RETURN_IF_ERROR(runtime.GetAllocator(stream->device(), &allocator));
    Pool* pool = stream->pool.load(std::memory_order_acquire);
    if (pool == nullptr) [[unlikely]] {
      pool = allocator->PoolFor(stream);
      stream->pool.store(pool, std::memory_order_release);
    }
    return allocator->Allocate(size, pool, ptr);
  });
}

orError_t orFreeAsync(void* ptr) {
  if (ptr == nullptr) return orSuccess;
  return WithOwner(
      ptr, [&](BlockAllocator& allocator) { return allocator.Free(ptr, /*everywhere=*/false); });
}

orError_t orMemRecordStream(void* ptr, orStream_t handle) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    BlockAllocator* allocator;
    OPENREG_RETURN_IF_ERROR(OwnerOf(runtime, ptr, &allocator));
    return allocator->RecordUse(ptr, stream);
  });
}

orError_t orMemRetain(void* ptr) {
  return WithOwner(ptr, [&](BlockAllocator& allocator) { return allocator.Retain(ptr); });
}

orError_t orMemRelease(void* ptr) {
  return WithOwner(ptr, [&](BlockAllocator& allocator) { return allocator.Release(ptr); });
}

orError_t orMemEmptyCache(int device) {
  return WithAllocator(device, [](BlockAllocator& allocator) {
    allocator.Trim();
    return Status();
  });
}

orError_t orMemGetInfo(size_t* free, size_t* total) {
  return WithAllocator(current_device, [&](BlockAllocator& allocator) -> Status {
    OPENREG_CHECK_OUT(free);
    OPENREG_CHECK_OUT(total);
    Runtime& runtime = *Runtime::Current();
    *total = runtime.budget().limit();
    *free = *total - std::min(*total, runtime.budget().used()) + allocator.CachedBytes();
    return Status();
  });
}

orError_t orMemGetStats(int device, orMemStats* stats) {
  return WithAllocator(device, [&](BlockAllocator& allocator) -> Status {
    OPENREG_CHECK_OUT(stats);
    if (stats->structSize != sizeof(orMemStats)) {
      return openreg::InvalidValue(Format("orMemStats::structSize: expected %zu, got %zu",
                                          sizeof(orMemStats), stats->structSize));
    }
    allocator.ReadStats(stats);
    return Status();
  });
}

orError_t orMemResetPeakStats(int device) {
  return WithAllocator(device, [](BlockAllocator& allocator) {
    allocator.ResetPeakStats();
    return Status();
  });
}

orError_t orMemResetAccumulatedStats(int device) {
  return WithAllocator(device, [](BlockAllocator& allocator) {
    allocator.ResetAccumulatedStats();
    return Status();
  });
}

orError_t orMemSetFraction(int device, double fraction) {
  return WithAllocator(device, [&](BlockAllocator& allocator) -> Status {
    if (!(fraction > 0 && fraction <= 1)) {
      return openreg::InvalidValue(
          Format("memory fraction: expected a number in (0, 1], got %g", fraction));
    }
    allocator.set_fraction(fraction);
    return Status();
  });
}

orError_t orMemGetFraction(int device, double* fraction) {
  return WithAllocator(device, [&](BlockAllocator& allocator) -> Status {
    OPENREG_CHECK_OUT(fraction);
    *fraction = allocator.fraction();
    return Status();
  });
}

orError_t orHostAlloc(void** ptr, size_t size) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(ptr);
    OPENREG_RETURN_IF_ERROR(CheckSize(size));
    if (size == 0) {
      *ptr = nullptr;
      return Status();
    }
    return runtime.host_memory().Allocate(size, ptr);
  });
}

orError_t orHostFree(void* ptr) {
  if (ptr == nullptr) return orSuccess;
  return Enter([&](Runtime& runtime) { return runtime.host_memory().Free(ptr); });
}

orError_t orHostRegister(void* ptr, size_t size) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_RETURN_IF_ERROR(CheckSize(size));
    if (ptr == nullptr || size == 0) {
      return openreg::InvalidValue("orHostRegister: expected a pointer and a size above 0");
    }
    if (runtime.space().Contains(ptr) || runtime.space().ContainsKernel(ptr)) {
      return openreg::InvalidValue(Format("orHostRegister: %p is device memory", ptr));
    }
    return runtime.host_memory().Register(ptr, size);
  });
}

orError_t orHostUnregister(void* ptr) {
  return Enter([&](Runtime& runtime) { return runtime.host_memory().Unregister(ptr); });
}

orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(attributes);
    PointerInfo info;
    OPENREG_RETURN_IF_ERROR(runtime.GetPointerInfo(ptr, &info));
    *attributes = orPointerAttributes{};
    attributes->type = info.type;
    attributes->device = -1;
    attributes->base = info.base;
    attributes->size = info.size;
    void* address = const_cast<void*>(ptr);
    attributes->kernelPointer = address;
    if (info.type == orMemoryTypeHost) attributes->hostPointer = address;
    if (info.type != orMemoryTypeDevice) return Status();
    attributes->device = info.region->device;
    attributes->devicePointer = address;
    attributes->kernelPointer = runtime.KernelPointer(ptr);
    attributes->arenaOffset =
        static_cast<size_t>(static_cast<const char*>(ptr) - info.region->device_base);
    attributes->imported = info.imported;
    return Status();
  });
}

orError_t orGetKernelDelta(ptrdiff_t* delta) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(delta);
    *delta = runtime.space().delta();
    return Status();
  });
}

orError_t orDeviceGetArena(int device, orArenaInfo* arena) {
  return WithAllocator(device, [&](BlockAllocator& allocator) -> Status {
    OPENREG_CHECK_OUT(arena);
    arena->deviceBase = allocator.arena().device_base();
    arena->kernelBase = Runtime::Current()->KernelPointer(arena->deviceBase);
    arena->size = allocator.arena().size();
    return Status();
  });
}

orError_t orMemcpy(void* dst, const void* src, size_t count, orMemcpyKind kind) {
  return Enter([&](Runtime& runtime) -> Status {
    if (count == 0) return Status();
    OPENREG_RETURN_IF_ERROR(CheckSize(count));
    Copy copy;
    OPENREG_RETURN_IF_ERROR(openreg::CheckCopy(runtime, dst, src, count, kind, &copy));
    return OnDefaultStream(runtime, [&](Stream* stream) { return openreg::CopyNow(copy, stream); });
  });
}

orError_t orMemcpyAsync(void* dst, const void* src, size_t count, orMemcpyKind kind,
                        orStream_t handle) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    if (count == 0) return Status();
    OPENREG_RETURN_IF_ERROR(CheckSize(count));
    Copy copy;
    OPENREG_RETURN_IF_ERROR(openreg::CheckCopy(runtime, dst, src, count, kind, &copy));
    Faults::BeforeLaunch(stream);
    return openreg::CopyInOrder(copy, stream);
  });
}

orError_t orMemset(void* ptr, int value, size_t count) {
  return Enter([&](Runtime& runtime) -> Status {
    if (count == 0) return Status();
    OPENREG_RETURN_IF_ERROR(CheckSize(count));
    void* kernel;
    OPENREG_RETURN_IF_ERROR(openreg::CheckFill(runtime, ptr, count, &kernel));
    return OnDefaultStream(
        runtime, [&](Stream* stream) { return openreg::FillNow(kernel, value, count, stream); });
  });
}

orError_t orMemsetAsync(void* ptr, int value, size_t count, orStream_t handle) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    if (count == 0) return Status();
    OPENREG_RETURN_IF_ERROR(CheckSize(count));
    void* kernel;
    OPENREG_RETURN_IF_ERROR(openreg::CheckFill(runtime, ptr, count, &kernel));
    Faults::BeforeLaunch(stream);
    return openreg::FillInOrder(kernel, value, count, stream);
  });
}

void orKernelMemcpy(void* dst, const void* src, size_t count) {
  openreg::CopyBytes(dst, src, count);
}

}  // extern "C"
