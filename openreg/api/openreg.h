/* openreg: the C API of a simulated accelerator.
 *
 * The API follows the CUDA runtime one to one (prefix `or` for `cuda`), so that what it means is
 * what the field already knows; where it differs, the comment says so. It is valid C11 and C++.
 *
 * CONVENTIONS
 *   - Sizes and offsets are bytes, times are milliseconds unless the name ends in _ns.
 *   - Every function returns an orError_t. A failure also sets the calling thread's last error and
 *     a message that says what was expected and what came: orGetLastErrorMessage(). orErrorNotReady
 *     is an answer, not a failure: it leaves both alone, so polling costs nothing.
 *   - Out-parameters are written only on success. A NULL out-parameter is orErrorInvalidValue.
 *   - Every function may be called from any thread. The current device is per thread (default 0).
 *   - "Stream-ordered": the call queues work on a stream and returns; the work runs after all that
 *     was queued there before. "Blocks": the call waits on the host.
 *   - A NULL stream is the default stream of the calling thread's current device. It is an ordinary
 *     stream: it does not synchronise with the others (CUDA's "per-thread"-like, non-blocking).
 *   - Any function may return orErrorInitializationError (the device cannot be set up, or this is a
 *     forked child of a process that had used it; blame: the caller, or the limits named in the
 *     message). Synchronising and querying calls may also return the error that asynchronous work
 *     left behind (see orLaunchKernel).
 *   - Names of work have static storage. NULL is allowed; a hold without a name is not reported to
 *     profilers.
 *
 * LIFE OF A PROCESS
 *   - Nothing is set up at load time. A process that forks before its first use of the device may
 *     use it on both sides; after a use, the child gets orErrorInitializationError from everything
 *     but the device count, errors and versions.
 *   - When the process exits (exit handlers), a kernel or host function that is running may go on
 *     for one second; work that has not begun is dropped and its fn is never called. From then on
 *     queueing work and waiting for it are orErrorInitializationError; memory can still be freed.
 *     Whoever needs the results synchronises before.
 *
 * ENVIRONMENT (read once, at the first call that needs it)
 *   OPENREG_DEVICE_COUNT    number of devices, 1..64, default 8
 *   OPENREG_DEVICE_MEMORY   bytes (suffix K, M, G or T) shared by all devices of the process;
 *                           default: the smaller of RAM and the cgroup's memory limit
 *   A value that is none of these makes every call orErrorInitializationError.
 */
#ifndef OPENREG_API_OPENREG_H_
#define OPENREG_API_OPENREG_H_

#include <stddef.h>
#include <stdint.h>

#define OPENREG_VERSION_MAJOR 0
#define OPENREG_VERSION_MINOR 1
#define OPENREG_VERSION_PATCH 0
/* major * 10000 + minor * 100 + patch */
#define OPENREG_VERSION \
  (OPENREG_VERSION_MAJOR * 10000 + OPENREG_VERSION_MINOR * 100 + OPENREG_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque handles. A destroyed handle is told apart from a live one for as long as possible. */
typedef struct orStream* orStream_t;
typedef struct orEvent* orEvent_t;

/* ------------------------------------------------------------------------------------ errors */

typedef enum orError {
  orSuccess = 0,
  orErrorInvalidValue = 1,          /* caller: an argument is out of its range */
  orErrorMemoryAllocation = 2,      /* caller or limits: device or host memory is exhausted */
  orErrorInitializationError = 3,   /* limits, or use after fork */
  orErrorInvalidDevice = 4,         /* caller: no such device */
  orErrorInvalidDevicePointer = 5,  /* caller: not (or no longer) memory of this device */
  orErrorInvalidResourceHandle = 6, /* caller: stream, event or IPC handle unknown or destroyed */
  orErrorNotReady = 7,              /* not an error: asynchronous work has not finished */
  orErrorTimeout = 8,               /* a deadline given by the caller has passed */
  orErrorLaunchFailure = 9,         /* a kernel that was queued earlier reported failure */
  orErrorPeerDead = 10,             /* the process that owns an imported resource has ended */
  orErrorNotPermitted = 11,         /* not allowed here: e.g. synchronise inside a host function */
  orErrorNotSupported = 12,         /* this runtime does not have the capability */
  orErrorMapBufferObject = 13, /* limits: address space or descriptors for a mapping are gone */
  orErrorOperatingSystem = 14, /* system: a system call failed; the message names it */
  orErrorUnknown = 999
} orError_t;

/* The enumerator's name ("orErrorInvalidValue"), static storage. Never NULL. */
const char* orGetErrorName(orError_t error);
/* A sentence that explains the code, static storage. Never NULL. */
const char* orGetErrorString(orError_t error);
/* The last error of this thread; orGetLastError resets it, orPeekAtLastError does not. */
orError_t orGetLastError(void);
orError_t orPeekAtLastError(void);
/* What was expected and what came in this thread's last failed call ("" if none). Valid until the
 * thread's next failing call. Never NULL. */
const char* orGetLastErrorMessage(void);

/* OPENREG_VERSION of the library that is loaded. */
orError_t orRuntimeGetVersion(int* version);

/* ----------------------------------------------------------------------------------- devices */

typedef struct orDeviceProp {
  char name[256];
  size_t totalGlobalMem;   /* bytes: OPENREG_DEVICE_MEMORY, shared by the process's devices */
  int major, minor;        /* compute capability, 1.0 */
  int multiProcessorCount; /* CPU cores that this process may use */
  int asyncEngineCount;    /* copies that may run beside kernels */
  int streamPriorityLow, streamPriorityHigh;
  int canImportMemory; /* 1: IPC memory handles work here */
  unsigned char uuid[16];
} orDeviceProp;

/* Reading the count does not bring the device to life; it is what OPENREG_DEVICE_COUNT says, and it
 * works after fork. */
orError_t orGetDeviceCount(int* count);
orError_t orGetDevice(int* device);
/* Errors: orErrorInvalidDevice. */
orError_t orSetDevice(int device);
orError_t orGetDeviceProperties(orDeviceProp* prop, int device);
/* 1 for every pair of devices of a process: they share memory. */
orError_t orDeviceCanAccessPeer(int* canAccess, int device, int peerDevice);
orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);
/* Blocks until all streams of the current device are empty. Returns the first error that
 * asynchronous work of the device left behind, and clears it. */
orError_t orDeviceSynchronize(void);
/* As above with a deadline; timeout_ms < 0 waits for ever. Errors: orErrorTimeout. */
orError_t orDeviceSynchronizeTimeout(int device, int64_t timeout_ms);

/* ------------------------------------------------------------------------------------ memory
 *
 * Device memory lies in one arena per device. It is mapped twice: the address that orMalloc returns
 * is in the device range, where any access of the host faults (SIGSEGV); kernels reach the same
 * bytes in the kernel range, at a constant distance (orGetKernelDelta). An arena is one anonymous
 * file, so that a peer process maps a whole device at once.
 *
 * Alignment: every allocation is aligned to 512 bytes at least; sizes are rounded up to that.
 */

/* What the memory limit counts, as torch's caching-allocator statistics name it. */
typedef struct orMemStat {
  int64_t current, peak, allocated, freed; /* allocated and freed are running totals */
} orMemStat;

typedef struct orMemStats {
  size_t structSize;                                    /* in: sizeof(orMemStats) of the caller */
  orMemStat allocation, segment, active, inactiveSplit; /* counts */
  orMemStat allocatedBytes, reservedBytes, activeBytes, inactiveSplitBytes, requestedBytes;
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

/* ----------------------------------------------------------------------------------- streams
 *
 * In order; one worker thread per stream, started when work is first queued.
 */

/* Priorities as CUDA's: lower numbers run first; clamped to the device's range. They are a hint to
 * the system's scheduler, which takes it from privileged processes only. */
orError_t orStreamCreate(orStream_t* stream);
orError_t orStreamCreateWithPriority(orStream_t* stream, int priority);
/* Does not block: queued work still runs, then the stream's resources go. Using the handle
 * afterwards is orErrorInvalidResourceHandle. The default streams cannot be destroyed:
 * orErrorInvalidValue. */
orError_t orStreamDestroy(orStream_t stream);
orError_t orDeviceGetDefaultStream(orStream_t* stream, int device);
orError_t orStreamGetDevice(orStream_t stream, int* device);
orError_t orStreamGetPriority(orStream_t stream, int* priority);
/* A number that no other stream of the process has or had. The default stream of device d has id d.
 */
orError_t orStreamGetId(orStream_t stream, uint64_t* id);
/* orSuccess if the stream is empty, orErrorNotReady if work is queued or running (a held stream is
 * running). Reports and clears an error that asynchronous work left behind. */
orError_t orStreamQuery(orStream_t stream);
/* Blocks until what is queued now has run. Inside a host function or kernel of the same stream:
 * orErrorNotPermitted. */
orError_t orStreamSynchronize(orStream_t stream);
/* timeout_ms < 0 waits for ever. Errors: orErrorTimeout. */
orError_t orStreamSynchronizeTimeout(orStream_t stream, int64_t timeout_ms);
/* Work queued on `stream` from now on waits for the record of `event` that is current now; a later
 * re-record does not change that. An event never recorded is no wait. The event may be of another
 * device, and may be destroyed right after. */
orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event);

/* A kernel returns orSuccess or the error to leave on its stream; a C++ exception that leaves it
 * counts as orErrorLaunchFailure. It may use device memory through the kernel range, and launch on
 * its own stream (which runs the new kernel at once, inside of it). Functions that would wait for
 * its own stream are orErrorNotPermitted. */
typedef orError_t (*orKernelFn)(void* arg);
typedef void (*orHostFn)(void* arg);

/* Stream-ordered. On an empty stream the kernel runs before the call returns, on the calling
 * thread, which holds the stream meanwhile; otherwise it is queued. fn is called exactly once;
 * `name` (static storage) is what profilers show. A kernel's failure stays on the stream until the
 * next synchronise or query of it (or of its device) returns and clears it; the work queued behind
 * still runs. */
orError_t orLaunchKernel(const char* name, orKernelFn fn, void* arg, orStream_t stream);
/* Always queued: fn runs on the stream's worker thread (as cudaLaunchHostFunc). */
orError_t orLaunchHostFunc(orStream_t stream, orHostFn fn, void* arg);
/* As orLaunchKernel, but always queued (asynchronous to the caller). */
orError_t orLaunchKernelQueued(const char* name, orKernelFn fn, void* arg, orStream_t stream);

/* Holding a stream: the calling thread becomes its worker for a while, and what it then does counts
 * as one kernel running there (query says not ready, a record made meanwhile by another thread
 * completes after the release). Re-entrant for the thread that holds. This is how an operator whose
 * outputs are not known beforehand runs. Cost without contention: tens of nanoseconds. */
/* Waits until the stream is empty, then holds it. timeout_ms < 0 waits for ever. Errors:
 * orErrorTimeout (the message names the stream and what is running). */
orError_t orStreamAcquire(orStream_t stream, const char* name, int64_t timeout_ms);
/* Does not wait: orErrorNotReady if the stream is not empty (last error and message are left
 * alone). */
orError_t orStreamTryAcquire(orStream_t stream, const char* name);
/* Ends the hold (the outermost one lets the queue go on). Errors: orErrorNotPermitted (not held by
 * this thread). */
orError_t orStreamRelease(orStream_t stream);
/* Ends the hold and lets the stream's worker go on with fn(arg) first, before anything that was
 * queued meanwhile: the rest of an operation that its caller has begun. Inside an outer hold, the
 * rest runs when the outermost one ends. If no worker can be started the error says so, fn is not
 * called, and the hold has ended all the same. */
orError_t orStreamReleaseTo(orStream_t stream, const char* name, orKernelFn fn, void* arg);

/* ------------------------------------------------------------------------------------ events */

#define orEventDefault 0x0u
#define orEventBlockingSync 0x1u  /* accepted; synchronising always sleeps after microseconds */
#define orEventDisableTiming 0x2u /* elapsed time is then an error */
#define orEventInterprocess 0x4u  /* may be exported; needs orEventDisableTiming too */

orError_t orEventCreate(orEvent_t* event);
/* On the current device. Errors: orErrorInvalidValue (unknown flags, Interprocess with timing). */
orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags);
orError_t orEventDestroy(orEvent_t event);
/* Captures the work queued on `stream` now. On an empty stream the record is complete at once.
 * Errors: orErrorInvalidResourceHandle (event and stream of different devices, or destroyed),
 * orErrorNotSupported (an event opened from a peer's handle: only its owner records it). */
orError_t orEventRecord(orEvent_t event, orStream_t stream);
/* orSuccess: the last record is complete, or there was none. orErrorNotReady otherwise. */
orError_t orEventQuery(orEvent_t event);
orError_t orEventSynchronize(orEvent_t event);
orError_t orEventSynchronizeTimeout(orEvent_t event, int64_t timeout_ms);
/* Errors: orErrorInvalidResourceHandle (never recorded, or timing disabled), orErrorNotReady. */
orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end);
orError_t orEventGetDevice(orEvent_t event, int* device);

/* -------------------------------------------------------- memory and events between processes
 *
 * Handles are plain bytes and may travel by any channel; they are checked on arrival, and only
 * processes of the same user can open them. While an import is open, the owner keeps the block: it
 * is not reused, even when the owner frees it. The import ends by the close (when the work that is
 * queued then on the importer's streams has ended; the call does not block), or by the importer's
 * death. A dead owner's memory stays readable by those who have it open.
 *
 * Processes find each other by an abstract Unix socket, so they have to share a network namespace.
 * Opening blocks until the owner's runtime has answered; without a timeout of its own, at most 30
 * seconds (orErrorTimeout).
 */

#define OR_IPC_HANDLE_SIZE 64
typedef struct orIpcMemHandle {
  unsigned char reserved[OR_IPC_HANDLE_SIZE];
} orIpcMemHandle_t;
typedef struct orIpcEventHandle {
  unsigned char reserved[OR_IPC_HANDLE_SIZE];
} orIpcEventHandle_t;
typedef struct orIpcDeviceHandle {
  unsigned char reserved[OR_IPC_HANDLE_SIZE];
} orIpcDeviceHandle_t;

/* A handle of the whole allocation that contains ptr (its base). */
orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* ptr);
/* *ptr is a device pointer of this process: the start of the peer's allocation. Opening one's own
 * handle is allowed here (CUDA refuses it): the pointer is the original. Errors:
 * orErrorInvalidValue (not a handle), orErrorInvalidResourceHandle (the memory is gone),
 * orErrorPeerDead, orErrorMapBufferObject, orErrorNotPermitted (another user). */
orError_t orIpcOpenMemHandle(void** ptr, const orIpcMemHandle_t* handle);
/* As often as it was opened. Errors: orErrorInvalidValue (not open). */
orError_t orIpcCloseMemHandle(void* ptr);
/* Frees what streams and peers no longer use (torch's ipc_collect). */
orError_t orIpcCollect(void);

/* Only for events made with orEventInterprocess. */
orError_t orIpcGetEventHandle(orIpcEventHandle_t* handle, orEvent_t event);
/* The event can be queried, waited for and destroyed here, not recorded. If its owner dies before
 * the record has completed, waits end with orErrorPeerDead (on a stream: left there). Errors as
 * orIpcOpenMemHandle, and orErrorNotSupported (an event of this process). */
orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle_t* handle);

/* A whole device of a peer (its arena) at once: the peer's tensors are then (arena, offset), with
 * orPointerAttributes::arenaOffset on the owner's side. The importer takes care not to touch what
 * the owner has freed. Opening a handle of the own process gives the own arena. */
typedef struct orIpcDevice* orIpcDevice_t;
orError_t orIpcGetDeviceHandle(orIpcDeviceHandle_t* handle, int device);
/* Blocks for at most timeout_ms (< 0: for ever). Errors as orIpcOpenMemHandle, and orErrorTimeout.
 */
orError_t orIpcOpenDevice(orIpcDevice_t* peer, const orIpcDeviceHandle_t* handle,
                          int64_t timeout_ms);
/* kernelBase is readable and writable; the mapping lives until orIpcCloseDevice. */
orError_t orIpcDeviceGetArena(orIpcDevice_t peer, orArenaInfo* arena);
orError_t orIpcCloseDevice(orIpcDevice_t peer);

/* --------------------------------------------------------------------------------- profiling */

typedef enum orActivityKind {
  orActivityKernel = 0,
  orActivityMemcpy = 1,
  orActivityMemset = 2,
  orActivityHostFunc = 3,
  orActivityMarker = 4 /* reported by a library, e.g. a collective */
} orActivityKind;

typedef struct orActivity {
  orActivityKind kind;
  const char* name; /* static storage */
  int device;
  uint64_t streamId;
  int64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
  size_t bytes;             /* moved, 0 if unknown */
} orActivity;

/* Called for each piece of work that ends, on the thread that ran it; must be fast and must not
 * call back into the runtime. NULL switches off (the default: then it costs one relaxed load). */
typedef void (*orActivityCallback)(const orActivity* activity, void* context);
/* After return no call of the previous callback is running. */
orError_t orProfilerSetCallback(orActivityCallback callback, void* context);
/* Hands a library's own activity (orActivityMarker) to the callback, if there is one. */
orError_t orProfilerReport(const orActivity* activity);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_OPENREG_H_ */
