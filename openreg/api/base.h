/* What everything else needs: handles, errors, the version. Part of openreg.h, which has the
 * conventions.
 */
#ifndef OPENREG_API_BASE_H_
#define OPENREG_API_BASE_H_

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
  orErrorNotedFailure = 15,    /* as orErrorLaunchFailure, of a kernel that has noted why */
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

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_BASE_H_ */
