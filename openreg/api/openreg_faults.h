/* Faults on request, for tests of error handling: a stream that is late, an allocation that fails.
 *
 * Not part of what a runtime must offer. A caller that may meet another runtime declares it weak
 * (as here) and asks whether orSetFaults is NULL.
 */
#ifndef OPENREG_API_OPENREG_FAULTS_H_
#define OPENREG_API_OPENREG_FAULTS_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/openreg.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Probabilities are 0 to 1. Whether the n-th launch (allocation) of the process since orSetFaults
 * is hit follows from the seed and n alone. */
typedef struct orFaults {
  size_t structSize; /* sizeof(orFaults_t) */
  uint64_t seed;
  double slowStream;        /* of each launch: the stream does nothing for slowStream_ns first */
  int64_t slowStream_ns;    /* 0 to 10 s */
  double failingAllocation; /* of each orMalloc, orMallocAsync: orErrorMemoryAllocation */
} orFaults_t;

/* From now on, for the whole process; NULL: no faults. Thread-safe. Errors: orErrorInvalidValue. */
__attribute__((weak)) orError_t orSetFaults(const orFaults_t* faults);
/* How many faults there were since the last orSetFaults. */
__attribute__((weak)) orError_t orGetFaultCounts(uint64_t* slowStreams,
                                                 uint64_t* failedAllocations);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_OPENREG_FAULTS_H_ */
