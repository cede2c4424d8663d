/* Faults on request, for tests of error handling: what a rank tells its peers comes late, cut, or
 * not at all, or its connection breaks.
 *
 * Not part of what a collective library must offer. A caller that may meet another library declares
 * it weak (as here) and asks whether occlSetFaults is NULL.
 */
#ifndef OCCL_API_OCCL_FAULTS_H_
#define OCCL_API_OCCL_FAULTS_H_

#include <stddef.h>
#include <stdint.h>

#include "occl/api/occl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Probabilities, 0 to 1, of each operation that this process begins; at most one fault befalls an
 * operation. Which one follows from the seed, the communicator's name, the rank, the peer and the
 * number of the operation alone, so a run with the same seed meets the same faults. */
typedef struct occlFaults {
  size_t structSize; /* sizeof(occlFaults_t) */
  uint64_t seed;
  double delay;     /* told delay_ns late: the peers wait, and succeed */
  int64_t delay_ns; /* 0 to 600 s */
  double drop;      /* never told: the peers' deadline ends the operation */
  double truncate;  /* one element less is told than the caller gave: occlMismatch */
  double reset;     /* the communicator fails with occlRemoteError */
} occlFaults_t;

enum { occlFaultDelay, occlFaultDrop, occlFaultTruncate, occlFaultReset, occlNumFaults };

/* For operations that begin from now on, in the whole process; NULL: no faults. Thread-safe.
 * Errors: occlInvalidArgument. */
__attribute__((weak)) occlResult_t occlSetFaults(const occlFaults_t* faults);
/* How many faults of each kind there were since the last occlSetFaults. */
__attribute__((weak)) occlResult_t occlGetFaultCounts(uint64_t counts[occlNumFaults]);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OCCL_API_OCCL_FAULTS_H_ */
