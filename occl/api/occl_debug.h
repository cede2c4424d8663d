/* How much is logged, changed while the process runs: for a program that knows that what fails now
 * is no news, because it is ending.
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

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OCCL_API_OCCL_DEBUG_H_ */
