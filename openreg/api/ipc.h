/* Memory and events between processes. Part of openreg.h, which has the conventions.
 *
 * Handles are plain bytes and may travel by any channel; they are checked on arrival, and only
 * processes of the same user can open them. While an import is open, the owner keeps the block: it
 * is not reused, even when the owner frees it. The import ends by the close (when the work that is
 * queued then on the importer's streams has ended; the call does not block), or by the importer's
 * death. A dead owner's memory stays readable by those who have it open.
 *
 * Linux charges a page to the memory cgroup of whoever touches it first. Once a process of another
 * cgroup has opened memory of a device, the owner takes the pages of all it allocates there at
 * once, so that no importer is charged, or killed, for them (orErrorMemoryAllocation: the system
 * had none left for what there was).
 *
 * Processes find each other by an abstract Unix socket, so they have to share a network namespace.
 * Opening blocks until the owner's runtime has answered; without a timeout of its own, at most 30
 * seconds (orErrorTimeout).
 */
#ifndef OPENREG_API_IPC_H_
#define OPENREG_API_IPC_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/base.h"
#include "openreg/api/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * orErrorInvalidValue (not a handle), orErrorInvalidResourceHandle (the memory is gone: freed, and
 * neither retained nor open anywhere), orErrorPeerDead, orErrorMapBufferObject, orErrorNotPermitted
 * (another user). */
orError_t orIpcOpenMemHandle(void** ptr, const orIpcMemHandle_t* handle);
/* As often as it was opened. Errors: orErrorInvalidValue (not open). */
orError_t orIpcCloseMemHandle(void* ptr);
/* Frees what streams and peers no longer use (torch's ipc_collect). */
orError_t orIpcCollect(void);

/* Only for events made with orEventInterprocess. */
orError_t orIpcGetEventHandle(orIpcEventHandle_t* handle, orEvent_t event);
/* The event can be recorded, queried and waited for on both sides, and is destroyed on each. What
 * counts is the last record of any process. If its owner, or who recorded it, dies before the
 * record has completed, waits end with orErrorPeerDead (on a stream: left there). Errors as
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

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_IPC_H_ */
