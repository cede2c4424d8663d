/* What the memory allows: the same data moved by plain loops, without any synchronisation inside.
 */
#ifndef TOOLS_BENCH_PERF_LIMIT_H_
#define TOOLS_BENCH_PERF_LIMIT_H_

#include "tools/bench/perf/operations.h"

/* Buffers in memory that all ranks share; made before the ranks are forked. */
typedef struct LimitBuffers {
  unsigned char* send[PERF_MAX_RANKS];
  unsigned char* recv[PERF_MAX_RANKS];
} LimitBuffers;

void MakeLimitBuffers(const Options* options, LimitBuffers* buffers);
/* 1 if there is a loop for the case: all that only moves data, and sums of float. */
int HasLimit(const Options* options, const Case* c);
/* Once, in s, on the slowest rank; the inputs have just been written by their owner. Collective. */
double LimitOnce(const Bench* bench, const LimitBuffers* buffers, const Case* c);

#endif /* TOOLS_BENCH_PERF_LIMIT_H_ */
