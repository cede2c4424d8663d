/* The operations: sizes, arguments, expected results. */
#ifndef TOOLS_BENCH_PERF_OPERATIONS_H_
#define TOOLS_BENCH_PERF_OPERATIONS_H_

#include <stddef.h>

#include "occl/api/occl.h"
#include "tools/bench/perf/options.h"
#include "tools/bench/perf/ranks.h"

/* One operation of one size. */
typedef struct Case {
  PerfOp op;
  size_t bytes;    /* nccl-tests' size */
  size_t elements; /* of the whole buffer: bytes / element size */
  size_t part;     /* elements per rank, for the operations that divide the buffer */
  int in_place;
} Case;

typedef struct Bench {
  const Options* options;
  Rank* rank;
  occlComm_t comm;
  size_t element_bytes;
  unsigned char *a, *b; /* device buffers of max_bytes */
  void* host;           /* host buffer of max_bytes */
} Bench;

/* 0 if the size does not suit the operation (fewer elements than ranks, or not divisible). */
int MakeCase(const Options* options, PerfOp op, size_t bytes, int in_place, Case* out);
int HasInPlace(PerfOp op);
int HasRoot(PerfOp op);
int Reduces(PerfOp op);
/* busbw = algbw * this. */
double BusFactor(PerfOp op, int ranks);

/* Issues the operation once on the default stream; sendrecv is a whole ping-pong. */
void Issue(const Bench* bench, const Case* c);
void WaitForAll(const Bench* bench);
/* The owner rewrites the inputs, as a kernel of its own. */
void Refresh(const Bench* bench, const Case* c);
/* Runs the operation once on known values; the wrong elements of this rank. */
size_t CountWrong(const Bench* bench, const Case* c);

/* End the process with the message of a failed call. */
void CheckOccl(occlResult_t result, const char* call, occlComm_t comm);
void CheckDevice(orError_t error, const char* call);
#define OCCL(call) CheckOccl((call), #call, bench->comm)
#define DEVICE(call) CheckDevice((call), #call)

#endif /* TOOLS_BENCH_PERF_OPERATIONS_H_ */
