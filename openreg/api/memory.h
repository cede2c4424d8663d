/* Device memory, pinned memory, pointers, copies. Part of openreg.h, which has the conventions.
 *
 * Device memory lies in one arena per device. It is mapped twice: the address that orMalloc returns
 * is in the device range, where any access of the host faults (SIGSEGV); kernels reach the same
 * bytes in the kernel range, at a constant distance (orGetKernelDelta). An arena is one anonymous
 * file, so that a peer process maps a whole device at once.
 *
 * Alignment: every allocation is aligned to 512 bytes at least; sizes are rounded up to that.
 */
#ifndef OPENREG_API_MEMORY_H_
#define OPENREG_API_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the memory limit counts, as torch's caching-allocator statistics name it. */
typedef struct orMemStat {
  int64_t current, peak, allocated, freed; /* allocated and freed are running totals */
} orMemStat;

typedef struct orMemPoolStats {
  orMemStat allocation, segment, active, inactiveSplit; /* counts */
  orMemStat allocatedBytes, reservedBytes, activeBytes, inactiveSplitBytes, requestedBytes;
} orMemPoolStats;

/* Small allocations (up to 256 KB) have segments of their own; near the limit a small one may lie
 * in a segment for large ones, and then counts as large. */
typedef struct orMemStats {
  size_t structSize; /* in: sizeof(orMemStats) of the caller */
  orMemPoolStats all, smallPool, largePool;
  int64_t numAllocRetries; /* times the cache was emptied to satisfy a request */
  int64_t numOoms;         /* requests refused */
  int64_t numSyncAllStreams;
  int64_t numDeviceAlloc, numDeviceFree; /* segments taken from and given back to the system */
} orMemStats;

/* Allocates on the current device; *ptr may be used on all streams at once. size 0 gives a NULL
 * pointer and success. Errors: orErrorMemoryAllocation (beyond the limit, the device's fraction or
 * what the system has left: the message has the figures), orErrorInvalidValue (more than
 * PTRDIFF_MAX bytes, e.g. a negative number). */
orError_t orMalloc(void** ptr, size_t size);
/* Frees memory of any device. NULL is a no-op. The block is not reused before the work that is
 * queued on the streams of the process at this moment has ended; the call does not block. Errors:
 * orErrorInvalidDevicePointer (foreign pointer, inside of a block, or freed twice). */
orError_t orFree(void* ptr);

/* The caching, stream-ordered allocator (the place of torch's CUDACachingAllocator): memory of the
 * stream's device for `stream`, reused by later allocations on that stream at once after
 * orFreeAsync, on others when `stream` has passed the point of the free. Takes no lock that threads
 * share in the common case. Errors as orMalloc, and orErrorInvalidResourceHandle. */
orError_t orMallocAsync(void** ptr, size_t size, orStream_t stream);
/* The stream given at allocation, and those of orMemRecordStream, have to pass the work queued on
 * them at this moment before the block is used by another stream. Does not block. Memory from
 * orMalloc belongs to no stream: for it this is orFree. Errors as orFree. */
orError_t orFreeAsync(void* ptr);
/* Notes that the block containing `ptr` is also used on `stream` (Tensor.record_stream), which may
 * be of another device. Errors: orErrorInvalidDevicePointer. */
orError_t orMemRecordStream(void* ptr, orStream_t stream);
/* Holds the block containing `ptr`: after a free it is not reused until each retain has been
 * released. Used for imports by peers and for buffers that a peer may still touch after an abort.
 */
orError_t orMemRetain(void* ptr);
orError_t orMemRelease(void* ptr);

/* Gives cached memory of the device that nobody uses back to the system. Memory that was freed on a
 * stream which has not passed the free yet stays. */
orError_t orMemEmptyCache(int device);
/* free = what orMalloc could still give to this process (its limit, less what is reserved, with
 * cached blocks counted as free), total = the limit. Current device. */
orError_t orMemGetInfo(size_t* free, size_t* total);
/* Errors: orErrorInvalidValue if stats->structSize is not one that this runtime knows. */
orError_t orMemGetStats(int device, orMemStats* stats);
orError_t orMemResetPeakStats(int device);
orError_t orMemResetAccumulatedStats(int device);
/* Limits the device to fraction (0..1] of the total. Allocations beyond fail. */
orError_t orMemSetFraction(int device, double fraction);
orError_t orMemGetFraction(int device, double* fraction);

/* Pinned host memory: readable and writable by the host and by asynchronous copies. */
orError_t orHostAlloc(void** ptr, size_t size);
/* The memory goes when the work that is queued on the streams of the process at this moment has
 * ended (copies may be under way); the call does not block. NULL is a no-op. Errors:
 * orErrorInvalidValue (not from orHostAlloc, or freed twice). */
orError_t orHostFree(void* ptr);
/* Makes existing host memory count as pinned. The caller keeps it until copies have ended. Errors:
 * orErrorInvalidValue (overlap with a pinned range, device memory). */
orError_t orHostRegister(void* ptr, size_t size);
orError_t orHostUnregister(void* ptr);

typedef enum orMemoryType {
  orMemoryTypeUnregistered = 0, /* ordinary host memory */
  orMemoryTypeHost = 1,         /* pinned */
  orMemoryTypeDevice = 2
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;          /* of device memory, else -1 */
  void* devicePointer; /* the pointer itself for device memory, else NULL */
  void* hostPointer;   /* for pinned memory, else NULL */
  void* kernelPointer; /* where a kernel finds the byte: kernel range, or the host pointer itself */
  void* base;          /* start of the allocation (device range), NULL for unregistered memory */
  size_t size;         /* of the allocation, bytes */
  size_t arenaOffset;  /* of ptr in its device's arena */
  int imported;        /* 1: opened from a peer's IPC handle */
} orPointerAttributes;

/* Never fails for a host pointer: it is Unregistered. A device-range address that is no live
 * allocation gives orErrorInvalidDevicePointer. */
orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);

/* kernel address = device address + delta, for every device pointer of this process, imported ones
 * included. Constant for the life of the process. */
orError_t orGetKernelDelta(ptrdiff_t* delta);

typedef struct orArenaInfo {
  void* deviceBase; /* no access by the host */
  void* kernelBase; /* read and write; = deviceBase + delta */
  size_t size;      /* reserved bytes; any allocation of the device lies in [deviceBase, +size) */
} orArenaInfo;
orError_t orDeviceGetArena(int device, orArenaInfo* arena);

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3,
  orMemcpyDefault = 4 /* found out from the pointers */
} orMemcpyKind;

/* Blocks: runs in order on the current device's default stream and waits for it. dst and src may be
 * of two devices; they must not overlap. Errors: orErrorInvalidValue (kind does not fit the
 * pointers), orErrorInvalidDevicePointer (range leaves its allocation), and the error that earlier
 * work left on the stream (the copy is done all the same). */
orError_t orMemcpy(void* dst, const void* src, size_t count, orMemcpyKind kind);
/* Stream-ordered. With pageable host memory on either side the call returns after that memory has
 * been read or written, as CUDA's does; with pinned memory it does not block. A copy of up to 64
 * KB, and one between devices, on an empty stream is done before the call returns. */
orError_t orMemcpyAsync(void* dst, const void* src, size_t count, orMemcpyKind kind,
                        orStream_t stream);
orError_t orMemset(void* ptr, int value, size_t count);
orError_t orMemsetAsync(void* ptr, int value, size_t count, orStream_t stream);

/* For kernels: copies between kernel addresses (or host memory) at once, on the calling thread, in
 * no stream. As memcpy: the ranges must not overlap and nothing is checked; large ones are written
 * past the caches, as orMemcpy writes them. */
void orKernelMemcpy(void* dst, const void* src, size_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_MEMORY_H_ */
