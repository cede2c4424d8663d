/* The ranks: processes forked by the first one, a page they share, a barrier, a clock. */
#ifndef TOOLS_BENCH_PERF_RANKS_H_
#define TOOLS_BENCH_PERF_RANKS_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "occl/api/occl.h"
#include "tools/bench/perf/options.h"

#define PERF_MAX_BATCHES 4096

typedef struct Shared {
  occlUniqueId id;
  struct {
    _Alignas(64) _Atomic uint64_t arrived; /* barriers that the rank has reached */
    double value;                          /* for Slowest and Sum */
  } rank[PERF_MAX_RANKS];
} Shared;

typedef struct Rank {
  int rank, ranks;
  Shared* shared;
  uint64_t barriers;
  double timeout_s;
} Rank;

double Seconds(void); /* CLOCK_MONOTONIC */
/* Waits for all ranks; ends the process with a message when timeout_s is over. */
void Barrier(Rank* rank);
/* The largest value, the sum of the values that all ranks give; on every rank. */
double Slowest(Rank* rank, double value);
double Sum(Rank* rank, double value);

/* Memory that the ranks forked later share. Exits with a message on failure. */
void* SharedMemory(size_t size_bytes);

/* Runs body in options->ranks new processes. Returns 0 if all of them returned 0, else ends the
 * others and returns 1. */
int RunRanks(const Options* options, Shared* shared, int (*body)(Rank*, void*), void* context);

#endif /* TOOLS_BENCH_PERF_RANKS_H_ */
