/* Four ranks as processes, written in C from what occl.h says: a store of one's own, uneven parts,
 * any source, groups, statistics, history, split, a rank that does not come, shrink. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "occl/api/occl.h"

enum { kRanks = 4, kKeys = 32 };

static int failures = 0;
static int own_rank = -1;

static void Expect(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "FAILED on rank %d: %s: %s\n", own_rank, what, occlGetLastError(NULL));
  ++failures;
}
#define EXPECT_OK(call) Expect((call) == occlSuccess, #call)
#define EXPECT(condition) Expect((condition), #condition)

/* ------------------------------------------------- a store in memory that the processes share */

typedef struct Entry {
  atomic_int ready;
  char key[128];
  unsigned char value[4096];
  size_t size;
} Entry;
typedef struct Store {
  atomic_int used;
  Entry entries[kKeys];
} Store;

static occlResult_t Set(void* context, const char* key, const void* value, size_t size) {
  Store* store = context;
  const int at = atomic_fetch_add(&store->used, 1);
  if (at >= kKeys || size > sizeof store->entries[0].value) return occlSystemError;
  Entry* entry = &store->entries[at];
  snprintf(entry->key, sizeof entry->key, "%s", key);
  memcpy(entry->value, value, size);
  entry->size = size;
  atomic_store(&entry->ready, 1);
  return occlSuccess;
}

static int64_t NowMs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static occlResult_t Get(void* context, const char* key, void* value, size_t capacity, size_t* size,
                        int64_t timeout_ms) {
  Store* store = context;
  const int64_t end_ms = NowMs() + timeout_ms;
  do {
    for (int i = kKeys - 1; i >= 0; --i) { /* the newest value of a key counts */
      Entry* entry = &store->entries[i];
      if (!atomic_load(&entry->ready) || strcmp(entry->key, key) != 0) continue;
      if (entry->size > capacity) return occlInternalError;
      memcpy(value, entry->value, entry->size);
      *size = entry->size;
      return occlSuccess;
    }
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  } while (timeout_ms < 0 || NowMs() < end_ms);
  return occlTimeout;
}

/* --------------------------------------------------------------------------- device memory */

static void Write(void* device, const void* host, size_t bytes) {
  EXPECT(orMemcpy(device, host, bytes, orMemcpyHostToDevice) == orSuccess);
}
/* Waits for the default stream, as every copy does. */
static void Read(void* host, const void* device, size_t bytes) {
  EXPECT(orMemcpy(host, device, bytes, orMemcpyDeviceToHost) == orSuccess);
}

/* ------------------------------------------------------------------------------ the checks */

static void PremultipliedSum(occlComm_t comm, int rank, double* device) {
  const double factor = rank + 1, value = 10.0;
  double sum = 0;
  occlRedOp_t op;
  Write(device, &value, sizeof value);
  EXPECT_OK(occlRedOpCreatePreMulSum(&op, &factor, occlFloat64, comm));
  EXPECT_OK(occlAllReduce(device, device, 1, occlFloat64, op, comm, NULL, NULL));
  EXPECT_OK(occlRedOpDestroy(op, comm));
  Read(&sum, device, sizeof sum);
  EXPECT(sum == 100.0);
  EXPECT(occlRedOpCreatePreMulSum(&op, &factor, occlInt32, comm) == occlInvalidArgument);
}

/* Rank r gives r elements of value r to rank 1. */
static void UnevenGather(occlComm_t comm, int rank, int32_t* device) {
  const size_t counts[kRanks] = {0, 1, 2, 3};
  void* parts[kRanks] = {device + 8, device + 8, device + 9, device + 11};
  const int32_t own[3] = {rank, rank, rank}, expected[6] = {1, 2, 2, 3, 3, 3};
  int32_t found[6];
  Write(device, own, sizeof own);
  EXPECT_OK(occlGatherv(device, counts[rank], rank == 1 ? parts : NULL, rank == 1 ? counts : NULL,
                        occlInt32, 1, comm, NULL, NULL));
  if (rank != 1) return;
  Read(found, device + 8, sizeof found);
  EXPECT(memcmp(found, expected, sizeof found) == 0);
}

/* Everyone sends to rank 0, which takes what comes; the barrier keeps later messages away. */
static void AnySource(occlComm_t comm, int rank, int64_t* device) {
  const int64_t own = 1000 + rank;
  int seen = 0;
  Write(device, &own, sizeof own);
  if (rank != 0) EXPECT_OK(occlSend(device, 1, occlInt64, 0, rank, comm, NULL, NULL));
  for (int i = 1; rank == 0 && i < kRanks; ++i) {
    occlRequest_t request = NULL;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    int source = -1;
    int64_t value = 0;
    options.request = &request;
    EXPECT_OK(occlRecv(device, 1, occlInt64, OCCL_ANY_SOURCE, OCCL_ANY_TAG, comm, NULL, &options));
    EXPECT_OK(occlRequestWait(request, 20000));
    EXPECT_OK(occlRequestGetSource(request, &source));
    EXPECT_OK(occlRequestFree(request));
    Read(&value, device, sizeof value);
    EXPECT(value == 1000 + source);
    seen |= 1 << source;
  }
  EXPECT(rank != 0 || seen == 0xe);
  EXPECT_OK(occlBarrier(comm, NULL, NULL));
}

/* A ring and a sum in one group; every rank names its sends first, which outside a group could
 * leave all of them waiting for each other. */
static void Grouped(occlComm_t comm, int rank, float* device) {
  const float own = (float)rank;
  float left = -1, sum = 0;
  Write(device, &own, sizeof own);
  EXPECT_OK(occlGroupStart());
  EXPECT_OK(occlSend(device, 1, occlFloat32, (rank + 1) % kRanks, 0, comm, NULL, NULL));
  EXPECT_OK(occlAllReduce(device, device + 2, 1, occlFloat32, occlSum, comm, NULL, NULL));
  EXPECT_OK(occlRecv(device + 1, 1, occlFloat32, (rank + 3) % kRanks, 0, comm, NULL, NULL));
  EXPECT_OK(occlGroupEnd());
  Read(&left, device + 1, sizeof left);
  Read(&sum, device + 2, sizeof sum);
  EXPECT(left == (float)((rank + 3) % kRanks) && sum == 6.0f);
  EXPECT_OK(occlGroupStart());
  EXPECT(occlSend(device, 1, occlFloat32, kRanks, 0, comm, NULL, NULL) == occlInvalidArgument);
  EXPECT(occlGroupEnd() == occlInvalidArgument);
  EXPECT(strstr(occlGetLastError(NULL), "expected 0 to 3") != NULL);
}

static void LookBack(occlComm_t comm, int rank) {
  occlStats_t stats;
  occlOpRecord_t records[64];
  size_t n = 64;
  memset(&stats, 0, sizeof stats);
  EXPECT(occlCommGetStats(comm, &stats) == occlInvalidArgument); /* structSize is not set */
  stats.structSize = sizeof stats;
  EXPECT_OK(occlCommFinalize(comm));
  EXPECT_OK(occlCommGetStats(comm, &stats));
  EXPECT(stats.operations >= 6);
  EXPECT(stats.oneshotOperations >= 2 && stats.inlineOperations <= stats.operations);
  EXPECT_OK(occlBarrier(comm, NULL, NULL));
  EXPECT_OK(occlCommFinalize(comm));
  EXPECT_OK(occlCommGetHistory(comm, (rank + 1) % kRanks, records, &n));
  EXPECT(n >= 6 && n <= 64);
  EXPECT(n > 0 && strcmp(records[n - 1].operation, "barrier") == 0 && records[n - 1].root == -1);
}

static void Halves(occlComm_t comm, int rank, int32_t* device) {
  occlComm_t half = NULL, none = NULL;
  int number = -1;
  int32_t value = 1 << rank;
  EXPECT_OK(occlCommSplit(comm, rank % 2, -rank, &half, NULL));
  EXPECT_OK(occlCommUserRank(half, &number));
  EXPECT(number == 1 - rank / 2); /* the keys turn the order round */
  Write(device, &value, sizeof value);
  EXPECT_OK(occlAllReduce(device, device, 1, occlInt32, occlBor, half, NULL, NULL));
  Read(&value, device, sizeof value);
  EXPECT(value == (rank % 2 == 0 ? 5 : 10));
  EXPECT_OK(occlCommDestroy(half));
  EXPECT_OK(occlCommSplit(comm, OCCL_SPLIT_NOCOLOR, 0, &none, NULL));
  EXPECT(none == NULL);
}

/* Rank 3 stays away from a barrier; the others learn who it was and go on without it. */
static void WithoutTheLast(occlComm_t comm, int rank, int32_t* device) {
  const int excluded[1] = {3};
  occlComm_t rest = NULL;
  occlRequest_t request = NULL;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  occlResult_t error = occlSuccess;
  int32_t value = rank + 1;
  options.timeout_ms = 300;
  options.request = &request;
  EXPECT_OK(occlBarrier(comm, NULL, &options));
  EXPECT(occlRequestWait(request, 20000) == occlTimeout);
  EXPECT_OK(occlRequestFree(request));
  EXPECT_OK(occlCommGetAsyncError(comm, &error));
  EXPECT(error == occlTimeout);
  EXPECT(strstr(occlGetLastError(comm), " 3 (pid ") != NULL);
  EXPECT(occlBarrier(comm, NULL, NULL) == occlTimeout); /* refused: the communicator is dead */
  EXPECT_OK(occlCommShrink(comm, excluded, 1, &rest, NULL, OCCL_SHRINK_DEFAULT));
  Write(device, &value, sizeof value);
  EXPECT_OK(occlAllReduce(device, device, 1, occlInt32, occlSum, rest, NULL, NULL));
  Read(&value, device, sizeof value);
  EXPECT(value == 6);
  EXPECT_OK(occlCommDestroy(rest));
}

static int RunRank(int rank, Store* shared, int go_on) {
  const occlStore_t store = {shared, Set, Get, NULL}; /* no add: only `early` needs it */
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  occlComm_t comm = NULL;
  void *device = NULL, *handle = NULL;
  own_rank = rank;
  alarm(120); /* the last deadline */
  config.name = "four in C";
  config.timeout_ms = 30000;
  config.device = rank;
  EXPECT(orSetDevice(rank) == orSuccess);
  EXPECT_OK(occlCommInitRankStore(&comm, kRanks, rank, &store, &config));
  EXPECT_OK(occlMemAlloc(&device, 4096));
  if (failures > 0) return 1;
  EXPECT_OK(occlCommRegister(comm, device, 4096, &handle));
  PremultipliedSum(comm, rank, device);
  UnevenGather(comm, rank, device);
  AnySource(comm, rank, device);
  Grouped(comm, rank, device);
  LookBack(comm, rank);
  Halves(comm, rank, device);
  if (rank < 3) WithoutTheLast(comm, rank, device);
  char byte = 0;
  if (rank == 3 && read(go_on, &byte, 1) != 1) ++failures; /* until the others are through */
  EXPECT_OK(occlCommDeregister(comm, handle));
  EXPECT_OK(occlCommDestroy(comm));
  EXPECT_OK(occlMemFree(device));
  return failures > 0;
}

int main(void) {
  Store* store =
      mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2], failed = 0;
  pid_t pids[kRanks];
  if (store == MAP_FAILED || pipe(ends) != 0) return 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    pids[rank] = fork();
    if (pids[rank] == 0) return RunRank(rank, store, ends[0]);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 0;
    if (rank == 3 && write(ends[1], "x", 1) != 1) failed = 1;
    if (waitpid(pids[rank], &status, 0) != pids[rank] || status != 0) failed = 1;
  }
  if (!failed) printf("four ranks in C are good\n");
  return failed;
}
