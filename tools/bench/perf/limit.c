#include "tools/bench/perf/limit.h"

#include <string.h>

void MakeLimitBuffers(const Options* options, LimitBuffers* buffers) {
  for (int r = 0; r < options->ranks; ++r) {
    buffers->send[r] = SharedMemory(options->max_bytes);
    buffers->recv[r] = SharedMemory(options->max_bytes);
  }
}

int HasLimit(const Options* options, const Case* c) {
  if (c->op == kPerfBarrier) return 0;
  return !Reduces(c->op) || (options->datatype == occlFloat32 && options->redop == occlSum);
}

/* Compiled for each instruction set, chosen by the loader. */
__attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3"))) static void AddTwo(
    float* restrict out, const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
__attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3"))) static void AddTo(
    float* out, const float* a, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] += a[i];
}
__attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3"))) static void
AddTwoTwice(float* restrict out, float* restrict other, const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float sum = a[i] + b[i];
    out[i] = sum;
    other[i] = sum;
  }
}

/* The sum of n elements from `first` on of all inputs, written to `writes` of the outputs; a block
 * at a time, so that the partial sums of more than two inputs stay in the cache. */
static void Reduce(const LimitBuffers* m, int ranks, size_t first, size_t n, int rank, int writes) {
  enum { kBlock = 4096 };
  for (size_t at = first; at < first + n; at += kBlock) {
    const size_t left = first + n - at, count = left < kBlock ? left : kBlock;
    float* out = (float*)m->recv[rank] + at;
    const float* in = (const float*)m->send[0] + at;
    if (ranks == 1) {
      memcpy(out, in, count * sizeof *in);
      continue;
    }
    const float* second = (const float*)m->send[1] + at;
    if (ranks == 2 && writes == 2) {
      AddTwoTwice(out, (float*)m->recv[1 - rank] + at, in, second, count);
      continue;
    }
    AddTwo(out, in, second, count);
    for (int r = 2; r < ranks; ++r) AddTo(out, (const float*)m->send[r] + at, count);
    for (int r = 0; r < ranks && writes > 1; ++r) {
      if (r != rank) memcpy((float*)m->recv[r] + at, out, count * sizeof *out);
    }
  }
}

static void Move(const Bench* bench, const LimitBuffers* m, const Case* c) {
  const int ranks = bench->rank->ranks, rank = bench->rank->rank, root = bench->options->root;
  const size_t part = c->part * bench->element_bytes, own = (size_t)rank * part;
  unsigned char* recv = m->recv[rank];
  switch (c->op) {
    case kPerfAllReduce: {
      const size_t first = c->elements * (size_t)rank / (size_t)ranks;
      const size_t end = c->elements * (size_t)(rank + 1) / (size_t)ranks;
      Reduce(m, ranks, first, end - first, rank, ranks);
      break;
    }
    case kPerfReduceScatter:
      Reduce(m, ranks, (size_t)rank * c->part, c->part, rank, 1);
      break;
    case kPerfReduce:
      if (rank == root) Reduce(m, ranks, 0, c->elements, rank, 1);
      break;
    case kPerfBroadcast:
      if (rank != root) memcpy(recv, m->send[root], c->bytes);
      break;
    case kPerfScatter:
      memcpy(recv, m->send[root] + own, part);
      break;
    case kPerfSendRecv: /* one way; the other way takes as long */
      if (rank == 1) memcpy(recv, m->send[0], c->bytes);
      break;
    default: /* all_gather, gather, all_to_all: a part from each */
      for (int i = 0; i < ranks && (c->op != kPerfGather || rank == root); ++i) {
        const size_t peer = (size_t)((rank + i) % ranks);
        memcpy(recv + peer * part, m->send[peer] + (c->op == kPerfAllToAll ? own : 0), part);
      }
  }
}

double LimitOnce(const Bench* bench, const LimitBuffers* buffers, const Case* c) {
  memset(buffers->send[bench->rank->rank], 0, c->bytes);
  Barrier(bench->rank);
  const double start = Seconds();
  Move(bench, buffers, c);
  return Slowest(bench->rank, Seconds() - start);
}
