/* The command line of occl_perf, in nccl-tests' manner. */
#ifndef TOOLS_BENCH_PERF_OPTIONS_H_
#define TOOLS_BENCH_PERF_OPTIONS_H_

#include <stddef.h>

#include "occl/api/occl.h"

#define PERF_MAX_RANKS 64

typedef enum PerfOp {
  kPerfAllReduce,
  kPerfBroadcast,
  kPerfReduce,
  kPerfAllGather,
  kPerfReduceScatter,
  kPerfGather,
  kPerfScatter,
  kPerfAllToAll,
  kPerfSendRecv,
  kPerfBarrier,
  kPerfNumOps
} PerfOp;

typedef struct Options {
  int ops[kPerfNumOps]; /* 1: measured */
  int ranks;
  size_t min_bytes, max_bytes, factor;
  occlDataType_t datatype;
  occlRedOp_t redop;
  int root;
  int iters; /* calls per batch; 0: so many that a batch takes about 300 us */
  int warmup;
  double budget_s; /* timed batches per line */
  int blocking;    /* 1: each call is waited for; 0: a batch is queued, then waited for */
  int refresh;     /* inputs are rewritten by their owner before every call, one call a batch */
  int check;       /* results are compared */
  int limit;       /* the bare kernels are measured beside */
  int limit_only;  /* nothing else is measured: lines "limit OP BYTES MICROSECONDS" */
  int pin;         /* rank r runs on CPU r % CPUs */
  int median;      /* 1: medians of the batches, 0: minima */
  int timeout_s;   /* of every wait */
} Options;

const char* PerfOpName(PerfOp op);
const char* PerfTypeName(occlDataType_t datatype);
const char* PerfRedOpName(occlRedOp_t op);

/* Exits with a message: 2 for a bad argument, 0 for --help. */
void ParseOptions(int argc, char** argv, Options* options);

#endif /* TOOLS_BENCH_PERF_OPTIONS_H_ */
