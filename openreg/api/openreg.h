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

#include "openreg/api/base.h"
#include "openreg/api/device.h"
#include "openreg/api/ipc.h"
#include "openreg/api/memory.h"
#include "openreg/api/profiler.h"
#include "openreg/api/stream.h"

#endif /* OPENREG_API_OPENREG_H_ */
