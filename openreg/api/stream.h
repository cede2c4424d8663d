/* Streams, kernels, events. Part of openreg.h, which has the conventions.
 *
 * In order; one worker thread per stream, started when work is first queued.
 */
#ifndef OPENREG_API_STREAM_H_
#define OPENREG_API_STREAM_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * device, and may be destroyed right after. An error that work left on the event's stream is left
 * on `stream` too; whichever is asked first reports it, once. */
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
 * still runs. Of several failures the first stays, or is what the device's synchronise returns;
 * but orErrorNotedFailure gives way to any other. Kernels return that one whose program knows by
 * itself what failed, and may find that it matters no more; the runtime makes none of its own. */
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
 * queued meanwhile: the rest of an operation that its caller has begun. Profilers see one activity,
 * from the beginning of the hold to the end of the rest, under `name`. Inside an outer hold, the
 * rest runs when the outermost one ends, and is an activity of its own. If no worker can be started
 * the error says so, fn is not called, and the hold has ended all the same. */
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
 * Errors: orErrorInvalidResourceHandle (event and stream of different devices, unless the event was
 * opened from a peer's handle; or destroyed). */
orError_t orEventRecord(orEvent_t event, orStream_t stream);
/* orSuccess: the last record is complete, or there was none. orErrorNotReady otherwise. */
orError_t orEventQuery(orEvent_t event);
/* Blocks until the last record is complete. Reports and clears an error that work left behind on
 * the stream where it was recorded. */
orError_t orEventSynchronize(orEvent_t event);
orError_t orEventSynchronizeTimeout(orEvent_t event, int64_t timeout_ms);
/* Errors: orErrorInvalidResourceHandle (never recorded, timing disabled, or events of two devices),
 * orErrorNotReady. */
orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end);
orError_t orEventGetDevice(orEvent_t event, int* device);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_STREAM_H_ */
