#include "tools/bench/perf/operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/perf/values.h"

void CheckOccl(occlResult_t result, const char* call, occlComm_t comm) {
  if (result == occlSuccess) return;
  fprintf(stderr, "occl_perf: %.40s...: %s: %s%s%s\n", call, occlGetErrorString(result),
          occlGetLastError(NULL), comm != NULL ? "; " : "",
          comm != NULL ? occlGetLastError(comm) : "");
  exit(1);
}

void CheckDevice(orError_t error, const char* call) {
  if (error == orSuccess) return;
  fprintf(stderr, "occl_perf: %.40s...: %s: %s\n", call, orGetErrorName(error),
          orGetLastErrorMessage());
  exit(1);
}

static int Divides(PerfOp op) {
  return op == kPerfAllGather || op == kPerfReduceScatter || op == kPerfGather ||
         op == kPerfScatter || op == kPerfAllToAll;
}

int HasInPlace(PerfOp op) {
  return op != kPerfAllToAll && op != kPerfSendRecv && op != kPerfBarrier;
}
int HasRoot(PerfOp op) {
  return op == kPerfBroadcast || op == kPerfReduce || op == kPerfGather || op == kPerfScatter;
}
int Reduces(PerfOp op) {
  return op == kPerfAllReduce || op == kPerfReduce || op == kPerfReduceScatter;
}
double BusFactor(PerfOp op, int ranks) {
  const double others = (double)(ranks - 1) / ranks;
  if (op == kPerfAllReduce) return 2 * others;
  return Divides(op) ? others : 1;
}

int MakeCase(const Options* options, PerfOp op, size_t bytes, int in_place, Case* out) {
  const size_t ranks = (size_t)options->ranks;
  const size_t elements = op == kPerfBarrier ? 0 : bytes / occlDataTypeSize(options->datatype);
  *out = (Case){op, bytes, elements, elements / ranks, in_place};
  if (op == kPerfBarrier) return 1;
  if (op == kPerfSendRecv && ranks < 2) return 0;
  return elements > 0 && (!Divides(op) || (elements % ranks == 0 && elements >= ranks));
}

/* The buffers of a case on this rank. */
typedef struct Buffers {
  unsigned char *send, *recv;
} Buffers;

static Buffers Place(const Bench* bench, const Case* c) {
  Buffers buffers = {bench->a, bench->b};
  if (!c->in_place) return buffers;
  const size_t own = (size_t)bench->rank->rank * c->part * bench->element_bytes;
  const int is_root = bench->rank->rank == bench->options->root;
  if (c->op == kPerfAllGather || (c->op == kPerfGather && is_root)) {
    buffers.send = buffers.recv + own;
  } else if (c->op == kPerfReduceScatter || (c->op == kPerfScatter && is_root)) {
    buffers.recv = buffers.send + own;
  } else if (c->op == kPerfAllReduce || c->op == kPerfReduce || c->op == kPerfBroadcast) {
    buffers.send = buffers.recv;
  }
  return buffers;
}

static void PingPong(const Bench* bench, const Case* c, Buffers at) {
  const int rank = bench->rank->rank;
  if (rank > 1) return;
  const occlDataType_t type = bench->options->datatype;
  for (int half = 0; half < 2; ++half) {
    if (half == rank) {
      OCCL(occlSend(at.send, c->elements, type, 1 - rank, 0, bench->comm, NULL, NULL));
    } else {
      OCCL(occlRecv(at.recv, c->elements, type, 1 - rank, 0, bench->comm, NULL, NULL));
    }
  }
}

void Issue(const Bench* bench, const Case* c) {
  const Buffers at = Place(bench, c);
  const occlDataType_t type = bench->options->datatype;
  const occlRedOp_t op = bench->options->redop;
  const int root = bench->options->root;
  occlComm_t comm = bench->comm;
  switch (c->op) {
    case kPerfAllReduce:
      OCCL(occlAllReduce(at.send, at.recv, c->elements, type, op, comm, NULL, NULL));
      break;
    case kPerfBroadcast:
      OCCL(occlBroadcast(at.send, at.recv, c->elements, type, root, comm, NULL, NULL));
      break;
    case kPerfReduce:
      OCCL(occlReduce(at.send, at.recv, c->elements, type, op, root, comm, NULL, NULL));
      break;
    case kPerfAllGather:
      OCCL(occlAllGather(at.send, at.recv, c->part, type, comm, NULL, NULL));
      break;
    case kPerfReduceScatter:
      OCCL(occlReduceScatter(at.send, at.recv, c->part, type, op, comm, NULL, NULL));
      break;
    case kPerfGather:
      OCCL(occlGather(at.send, at.recv, c->part, type, root, comm, NULL, NULL));
      break;
    case kPerfScatter:
      OCCL(occlScatter(at.send, at.recv, c->part, type, root, comm, NULL, NULL));
      break;
    case kPerfAllToAll:
      OCCL(occlAllToAll(at.send, at.recv, c->part, type, comm, NULL, NULL));
      break;
    case kPerfSendRecv:
      PingPong(bench, c, at);
      break;
    case kPerfBarrier:
    case kPerfNumOps:
      OCCL(occlBarrier(comm, NULL, NULL));
      break;
  }
}

void WaitForAll(const Bench* bench) {
  DEVICE(orStreamSynchronizeTimeout(NULL, bench->options->timeout_s * 1000));
  occlResult_t asynchronous = occlSuccess;
  OCCL(occlCommGetAsyncError(bench->comm, &asynchronous));
  OCCL(asynchronous);
}

/* Elements that this rank contributes. */
static size_t SendElements(const Bench* bench, const Case* c) {
  const int is_root = bench->rank->rank == bench->options->root;
  if (c->op == kPerfBarrier || (c->op == kPerfSendRecv && bench->rank->rank > 1)) return 0;
  if ((c->op == kPerfBroadcast || c->op == kPerfScatter) && !is_root) return 0;
  return c->op == kPerfAllGather || c->op == kPerfGather ? c->part : c->elements;
}

typedef struct Range {
  unsigned char* data;
  size_t bytes;
} Range;

static orError_t Rewrite(void* arg) {
  const Range* range = arg;
  memset(range->data, 0, range->bytes);
  return orSuccess;
}

void Refresh(const Bench* bench, const Case* c) {
  ptrdiff_t delta = 0;
  DEVICE(orGetKernelDelta(&delta));
  Range range = {Place(bench, c).send + delta, SendElements(bench, c) * bench->element_bytes};
  DEVICE(orLaunchKernel("refresh", Rewrite, &range, NULL));
  DEVICE(orStreamSynchronize(NULL));
}

/* What element `index` of the result of `rank` must be; < 0 if it has no result. */
static double Expected(const Bench* bench, const Case* c, size_t index) {
  const occlRedOp_t op = bench->options->redop;
  const int ranks = bench->rank->ranks, rank = bench->rank->rank, root = bench->options->root;
  const size_t own = (size_t)rank * c->part;
  switch (c->op) {
    case kPerfAllReduce:
      return ReducedValue(op, ranks, index);
    case kPerfReduce:
      return rank == root ? ReducedValue(op, ranks, index) : -1;
    case kPerfReduceScatter:
      return ReducedValue(op, ranks, own + index);
    case kPerfBroadcast:
      return InputValue(op, root, index);
    case kPerfScatter:
      return InputValue(op, root, own + index);
    case kPerfGather:
      if (rank != root) return -1;
      return InputValue(op, (int)(index / c->part), index % c->part);
    case kPerfAllGather:
      return InputValue(op, (int)(index / c->part), index % c->part);
    case kPerfAllToAll:
      return InputValue(op, (int)(index / c->part), own + index % c->part);
    case kPerfSendRecv:
      return rank < 2 ? InputValue(op, 1 - rank, index) : -1;
    default:
      return -1;
  }
}

size_t CountWrong(const Bench* bench, const Case* c) {
  const occlDataType_t type = bench->options->datatype;
  const Buffers at = Place(bench, c);
  const size_t sent = SendElements(bench, c);
  DEVICE(orMemset(bench->a, 0x5a, c->bytes));
  DEVICE(orMemset(bench->b, 0x5a, c->bytes));
  for (size_t i = 0; i < sent; ++i) {
    PutElement(bench->host, i, type, InputValue(bench->options->redop, bench->rank->rank, i));
  }
  if (sent > 0) {
    DEVICE(orMemcpy(at.send, bench->host, sent * bench->element_bytes, orMemcpyHostToDevice));
  }
  Barrier(bench->rank); /* with sendrecv a rank's input could be read before it is there */
  Issue(bench, c);
  WaitForAll(bench);
  if (Expected(bench, c, 0) < 0) return 0;
  const size_t received =
      c->op == kPerfReduceScatter || c->op == kPerfScatter ? c->part : c->elements;
  DEVICE(orMemcpy(bench->host, at.recv, received * bench->element_bytes, orMemcpyDeviceToHost));
  size_t wrong = 0;
  for (size_t i = 0; i < received; ++i) {
    if (!ElementIs(bench->host, i, type, Expected(bench, c, i))) ++wrong;
  }
  return wrong;
}
