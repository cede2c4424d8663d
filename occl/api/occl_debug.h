/* How much is logged, changed while the process runs: for a program that knows that what fails now
 * is no news, because it is ending. And what is known of processes that are missed.
 *
 * Not part of what a collective library must offer. A caller that may meet another library declares
 * it weak (as here) and asks whether occlSetDebugLevel is NULL.
 */
#ifndef OCCL_API_OCCL_DEBUG_H_
#define OCCL_API_OCCL_DEBUG_H_

#include "occl/api/occl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, in the whole process, in the place of OCCL_DEBUG: "NONE", "VERSION", "WARN", "INFO"
 * or "TRACE", in any case of letters. Thread-safe.
 * Errors: occlInvalidArgument: NULL, or none of these. */
__attribute__((weak)) occlResult_t occlSetDebugLevel(const char* level);

/* Where another process (of this pid namespace) that shares a communicator with this one says that
 * it waits: "all_reduce #1 for rank(s) 0 (pid 7) in communicator dp", several joined by " and in ".
 * Cut to `capacity` bytes with the terminator; "" if it says nothing. Thread-safe; does not block.
 * Errors: occlInvalidArgument: text is NULL, or capacity is 0. */
__attribute__((weak)) occlResult_t occlGetProcessWaits(int64_t pid, char* text, size_t capacity);

/* What a pending operation of `comm` waits for, without waiting for its deadline: "waiting for
 * rank(s) 1 (pid 7) whose last operation is all_reduce #1 (complete), while it waits in ...". Cut
 * to `capacity` bytes with the terminator; "" if the operation is complete. The group in which it
 * was called, if any, must have ended. Thread-safe; does not block. Errors: occlInvalidArgument: an
 * argument is NULL, or capacity is 0. */
__attribute__((weak)) occlResult_t occlRequestTellWait(occlComm_t comm, occlRequest_t request,
                                                       char* text, size_t capacity);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OCCL_API_OCCL_DEBUG_H_ */
