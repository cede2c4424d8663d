/* Latency and bus bandwidth of OCCL's collectives, in nccl-tests' manner. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/perf/limit.h"
#include "tools/bench/perf/operations.h"
#include "tools/bench/perf/options.h"
#include "tools/bench/perf/ranks.h"

typedef struct Context {
  const Options* options;
  const LimitBuffers* limit;
} Context;

typedef struct Column {
  double seconds;
  double wrong; /* < 0: not checked */
} Column;

static int ByValue(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* The batches go on until the time is over and there are at least six; rank 0 decides. */
static int GoOn(Rank* rank, int batches, double start, double budget_s) {
  const int go = batches < PERF_MAX_BATCHES && (batches < 6 || Seconds() - start < budget_s);
  return Sum(rank, rank->rank == 0 ? go : 0) > 0;
}

static double Pick(double* seconds, int batches, int median) {
  qsort(seconds, (size_t)batches, sizeof *seconds, ByValue);
  return seconds[median ? batches / 2 : 0];
}

static double Batch(const Bench* bench, const Case* c, int iters) {
  if (bench->options->refresh) Refresh(bench, c);
  Barrier(bench->rank);
  const double start = Seconds();
  for (int i = 0; i < iters; ++i) {
    Issue(bench, c);
    if (bench->options->blocking) WaitForAll(bench);
  }
  if (!bench->options->blocking) WaitForAll(bench);
  return Slowest(bench->rank, (Seconds() - start) / iters);
}

static int ItersPerBatch(const Bench* bench, const Case* c) {
  if (bench->options->refresh) return 1;
  if (bench->options->iters > 0) return bench->options->iters;
  double once = Batch(bench, c, 1);
  if (once < 1e-4) once = Batch(bench, c, 10);
  const double wanted = 3e-4 / (once > 1e-7 ? once : 1e-7);
  return wanted < 1 ? 1 : wanted > 500 ? 500 : (int)wanted;
}

static Column Measure(const Bench* bench, const Case* c) {
  static double seconds[PERF_MAX_BATCHES];
  const Options* options = bench->options;
  Column column = {0, -1};
  if (options->check) column.wrong = Sum(bench->rank, (double)CountWrong(bench, c));
  for (int i = 0; i < options->warmup; ++i) Batch(bench, c, 1);
  const int iters = ItersPerBatch(bench, c);
  int batches = 0;
  for (const double start = Seconds(); GoOn(bench->rank, batches, start, options->budget_s);) {
    seconds[batches++] = Batch(bench, c, iters);
  }
  column.seconds = Pick(seconds, batches, options->median);
  if (c->op == kPerfSendRecv) column.seconds /= 2;
  return column;
}

static double MeasureLimit(const Bench* bench, const LimitBuffers* buffers, const Case* c) {
  static double seconds[PERF_MAX_BATCHES];
  int batches = 0;
  LimitOnce(bench, buffers, c); /* the pages come into being */
  for (const double start = Seconds();
       GoOn(bench->rank, batches, start, bench->options->budget_s / 2);) {
    seconds[batches++] = LimitOnce(bench, buffers, c);
  }
  return Pick(seconds, batches, bench->options->median);
}

static void PrintColumn(const Case* c, const Column* column, int ranks) {
  const double algbw = (double)c->bytes / column->seconds / 1e9;
  const int moves = c->op != kPerfBarrier;
  printf("  %10.2f %7.2f %7.2f", column->seconds * 1e6, moves ? algbw : 0,
         moves ? algbw * BusFactor(c->op, ranks) : 0);
  if (column->wrong < 0 || !moves) {
    printf("    N/A");
  } else {
    printf(" %6.0f", column->wrong);
  }
}

static void PrintHead(const Options* o) {
  printf("# occl_perf: %d ranks, %ld CPUs, %s of batches, %s calls%s%s\n", o->ranks,
         sysconf(_SC_NPROCESSORS_ONLN), o->median ? "medians" : "minima",
         o->blocking ? "blocking" : "queued", o->refresh ? ", inputs rewritten before each" : "",
         o->pin ? ", pinned" : "");
  printf("#%57s out-of-place                       in-place\n", "");
  printf("#%13s %12s %9s %6s %5s  %10s %7s %7s %6s  %10s %7s %7s %6s", "size", "count", "type",
         "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
  printf(o->limit ? "  %10s %6s\n" : "\n", "limit", "of it");
  printf("#%13s %12s %9s %6s %5s  %10s %7s %7s %6s  %10s %7s %7s %6s", "(B)", "(elements)", "", "",
         "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  printf(o->limit ? "  %10s %6s\n" : "\n", "(us)", "(%)");
}

/* One line of the table. Returns the wrong elements. */
static double Line(const Bench* bench, const LimitBuffers* buffers, PerfOp op, size_t bytes) {
  const Options* o = bench->options;
  Case c;
  if (!MakeCase(o, op, bytes, 0, &c)) return 0;
  const Column out = Measure(bench, &c);
  Column in = {0, -1};
  if (HasInPlace(op)) {
    c.in_place = 1;
    in = Measure(bench, &c);
  }
  const int limited = o->limit && HasLimit(o, &c);
  const double limit = limited ? MeasureLimit(bench, buffers, &c) : 0;
  if (bench->rank->rank == 0) {
    char root[12] = "-1";
    if (HasRoot(op)) snprintf(root, sizeof root, "%d", o->root);
    printf("%14zu %12zu %9s %6s %5s", op == kPerfBarrier ? 0 : bytes, c.elements,
           PerfTypeName(o->datatype), Reduces(op) ? PerfRedOpName(o->redop) : "none", root);
    PrintColumn(&c, &out, o->ranks);
    if (HasInPlace(op)) {
      PrintColumn(&c, &in, o->ranks);
    } else {
      printf("  %10s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    }
    if (limited) printf("  %10.2f %6.1f", limit * 1e6, 100 * limit / out.seconds);
    printf("\n");
    fflush(stdout);
  }
  return (out.wrong > 0 ? out.wrong : 0) + (in.wrong > 0 ? in.wrong : 0);
}

static int LimitBody(Rank* rank, void* arg) {
  const Context* context = arg;
  const Options* o = context->options;
  const Bench bench = {.options = o, .rank = rank, .element_bytes = occlDataTypeSize(o->datatype)};
  for (int op = 0; op < kPerfNumOps; ++op) {
    for (size_t bytes = o->min_bytes; o->ops[op] && bytes <= o->max_bytes; bytes *= o->factor) {
      Case c;
      if (!MakeCase(o, (PerfOp)op, bytes, 0, &c) || !HasLimit(o, &c)) continue;
      const double limit = MeasureLimit(&bench, context->limit, &c);
      if (rank->rank == 0)
        printf("limit %s %zu %.3f\n", PerfOpName((PerfOp)op), bytes, limit * 1e6);
    }
  }
  return 0;
}

static int RankBody(Rank* rank, void* arg) {
  const Context* context = arg;
  const Options* o = context->options;
  Bench bench_here = {.options = o, .rank = rank, .element_bytes = occlDataTypeSize(o->datatype)};
  Bench* bench = &bench_here;
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = config.initTimeout_ms = (int64_t)o->timeout_s * 1000;
  if (rank->rank == 0) OCCL(occlGetUniqueId(&rank->shared->id));
  Barrier(rank);
  OCCL(occlCommInitRank(&bench->comm, o->ranks, rank->shared->id, rank->rank, &config));
  DEVICE(orMalloc((void**)&bench->a, o->max_bytes));
  DEVICE(orMalloc((void**)&bench->b, o->max_bytes));
  DEVICE(orMemset(bench->a, 0, o->max_bytes));
  DEVICE(orMemset(bench->b, 0, o->max_bytes));
  bench->host = malloc(o->max_bytes);
  if (bench->host == NULL) {
    fprintf(stderr, "occl_perf: no memory for %zu bytes\n", o->max_bytes);
    return 1;
  }
  double wrong = 0;
  if (rank->rank == 0) PrintHead(o);
  for (int op = 0; op < kPerfNumOps; ++op) {
    if (!o->ops[op]) continue;
    if (rank->rank == 0) printf("# %s\n", PerfOpName((PerfOp)op));
    for (size_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes *= o->factor) {
      wrong += Line(bench, context->limit, (PerfOp)op, bytes);
      if (op == kPerfBarrier) break;
    }
  }
  if (rank->rank == 0)
    printf("# out of bounds values: %.0f %s\n", wrong, wrong > 0 ? "FAILED" : "OK");
  OCCL(occlCommFinalize(bench->comm));
  OCCL(occlCommDestroy(bench->comm));
  DEVICE(orFree(bench->a));
  DEVICE(orFree(bench->b));
  free(bench->host);
  return wrong > 0;
}

int main(int argc, char** argv) {
  Options options;
  ParseOptions(argc, argv, &options);
  Shared* shared = SharedMemory(sizeof *shared);
  LimitBuffers limit;
  memset(&limit, 0, sizeof limit);
  if (options.limit) MakeLimitBuffers(&options, &limit);
  Context context = {&options, &limit};
  return RunRanks(&options, shared, options.limit_only ? LimitBody : RankBody, &context);
}
