/* A program in C that has read occl.h only: one rank, each function called. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "occl/api/occl.h"

static int failures = 0;

static void Expect(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "FAILED: %s: %s\n", what, occlGetLastError(NULL));
  ++failures;
}

#define EXPECT_OK(call) Expect((call) == occlSuccess, #call)
#define EXPECT(condition) Expect((condition), #condition)

static void CallCollectives(occlComm_t comm, float* device, float* host) {
  size_t counts[1] = {4};
  void* recvs[1] = {device + 8};
  const void* sends[1] = {device};
  int i;
  for (i = 0; i < 4; ++i) host[i] = (float)(i + 1);
  EXPECT_OK(occlAllReduce(device, device, 4, occlFloat32, occlSum, comm, NULL, NULL));
  EXPECT_OK(occlBroadcast(device, device, 4, occlFloat32, 0, comm, NULL, NULL));
  EXPECT_OK(occlReduce(device, device, 4, occlFloat32, occlAvg, 0, comm, NULL, NULL));
  EXPECT_OK(occlAllGather(device, device, 4, occlFloat32, comm, NULL, NULL));
  EXPECT_OK(occlAllGatherv(device, recvs, counts, occlFloat32, comm, NULL, NULL));
  EXPECT_OK(occlReduceScatter(device, device, 4, occlFloat32, occlMax, comm, NULL, NULL));
  EXPECT_OK(occlReduceScatterv(sends, device + 8, counts, occlFloat32, occlSum, comm, NULL, NULL));
  EXPECT_OK(occlGather(device, device + 8, 4, occlFloat32, 0, comm, NULL, NULL));
  EXPECT_OK(occlGatherv(device, 4, recvs, counts, occlFloat32, 0, comm, NULL, NULL));
  EXPECT_OK(occlScatter(device, device + 8, 4, occlFloat32, 0, comm, NULL, NULL));
  EXPECT_OK(occlScatterv(sends, counts, device + 8, 4, occlFloat32, 0, comm, NULL, NULL));
  EXPECT_OK(occlAllToAll(device, device + 8, 4, occlFloat32, comm, NULL, NULL));
  EXPECT_OK(occlAllToAllv(sends, counts, recvs, counts, occlFloat32, comm, NULL, NULL));
  EXPECT_OK(occlBarrier(comm, NULL, NULL));
  EXPECT_OK(occlCommFinalize(comm));
  for (i = 0; i < 4; ++i) EXPECT(host[i] == (float)(i + 1) && host[8 + i] == host[i]);
}

static void CallMessages(occlComm_t comm, float* device, const float* host) {
  occlRequest_t request = NULL;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  occlResult_t result = occlInProgress;
  const char* message = NULL;
  int64_t start_ns = 0, end_ns = 0;
  int done = 0, source = -1;
  options.request = &request;
  EXPECT_OK(occlGroupStart());
  EXPECT_OK(occlSend(device, 4, occlFloat32, 0, 3, comm, NULL, NULL));
  EXPECT_OK(
      occlRecv(device + 12, 4, occlFloat32, OCCL_ANY_SOURCE, OCCL_ANY_TAG, comm, NULL, &options));
  EXPECT_OK(occlGroupEnd());
  EXPECT_OK(occlRequestWait(request, 10000));
  EXPECT_OK(occlRequestTest(request, &done));
  EXPECT(done == 1);
  EXPECT_OK(occlRequestGetResult(request, &result, &message));
  EXPECT(result == occlSuccess && strcmp(message, "") == 0);
  EXPECT_OK(occlRequestGetTimes(request, &start_ns, &end_ns));
  EXPECT(start_ns > 0 && start_ns <= end_ns);
  EXPECT_OK(occlRequestGetSource(request, &source));
  EXPECT(source == 0);
  EXPECT_OK(occlRequestFree(request));
  EXPECT(host[12] == host[0]);
}

static void CallQueries(occlComm_t comm) {
  int number = -1, dead[1] = {-1};
  int64_t pid = 0;
  occlStats_t stats;
  occlOpRecord_t records[64];
  size_t n = 64;
  occlResult_t error = occlInternalError;
  EXPECT_OK(occlCommCount(comm, &number));
  EXPECT(number == 1);
  EXPECT_OK(occlCommUserRank(comm, &number));
  EXPECT(number == 0);
  EXPECT_OK(occlCommDevice(comm, &number));
  EXPECT_OK(occlCommGetRankPid(comm, 0, &pid));
  EXPECT_OK(occlCommGetDeadRanks(comm, dead));
  EXPECT(dead[0] == 0);
  EXPECT_OK(occlCommSetTimeout(comm, 60000));
  EXPECT_OK(occlCommGetAsyncError(comm, &error));
  EXPECT(error == occlSuccess);
  stats.structSize = sizeof(stats);
  EXPECT_OK(occlCommGetStats(comm, &stats));
  EXPECT(stats.operations >= 16);
  EXPECT_OK(occlCommGetHistory(comm, 0, records, &n));
  EXPECT(n >= 16);
}

static void CallOthers(occlComm_t comm, float* device) {
  const float factor = 2.0f;
  occlRedOp_t op;
  void *handle = NULL, *memory = NULL;
  occlComm_t other = NULL;
  EXPECT_OK(occlRedOpCreatePreMulSum(&op, &factor, occlFloat32, comm));
  EXPECT_OK(occlAllReduce(device, device, 4, occlFloat32, op, comm, NULL, NULL));
  EXPECT_OK(occlRedOpDestroy(op, comm));
  EXPECT_OK(occlCommRegister(comm, device, 64, &handle));
  EXPECT_OK(occlCommDeregister(comm, handle));
  EXPECT_OK(occlMemAlloc(&memory, 1000));
  EXPECT_OK(occlMemFree(memory));
  EXPECT_OK(occlCommSplit(comm, 0, 0, &other, NULL));
  EXPECT_OK(occlCommDestroy(other));
  EXPECT(occlCommShrink(comm, NULL, -1, &other, NULL, OCCL_SHRINK_DEFAULT) == occlInvalidArgument);
  EXPECT(strstr(occlGetLastError(NULL), "excludeCount is -1") != NULL);
  EXPECT_OK(occlCommShrink(comm, NULL, 0, &other, NULL, OCCL_SHRINK_DEFAULT));
  EXPECT_OK(occlCommDestroy(other));
  EXPECT_OK(occlCommAbort(comm, "the end"));
  EXPECT(occlBarrier(comm, NULL, NULL) == occlAborted);
  EXPECT(strstr(occlGetLastError(comm), "the end") != NULL);
}

/* Refused by the runtime below, but the caller is to blame. */
static void CallWrongly(occlComm_t comm) {
  int on_host = 0;
  occlUniqueId id;
  occlComm_t other = NULL;
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.device = 999;
  EXPECT_OK(occlGetUniqueId(&id));
  EXPECT(occlMemFree(&on_host) == occlInvalidArgument);
  EXPECT(occlCommInitRank(&other, 1, id, 0, &config) == occlInvalidArgument && other == NULL);
  EXPECT(occlBarrier(comm, (orStream_t)(void*)&on_host, NULL) == occlInvalidArgument);
  EXPECT_OK(occlBarrier(comm, NULL, NULL));
}

int main(void) {
  occlUniqueId id;
  occlComm_t comm = NULL;
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  void* device = NULL;
  ptrdiff_t delta = 0;
  int version = 0;
  config.name = "in C";
  EXPECT_OK(occlGetVersion(&version));
  EXPECT(version == OCCL_VERSION);
  EXPECT(strcmp(occlGetErrorString(occlSuccess), "") != 0);
  EXPECT(occlDataTypeSize(occlComplex128) == 16 && occlDataTypeSize(occlNumTypes) == 0);
  EXPECT_OK(occlGetUniqueId(&id));
  EXPECT_OK(occlCommInitRank(&comm, 1, id, 0, &config));
  EXPECT(orMalloc(&device, 64) == orSuccess && orGetKernelDelta(&delta) == orSuccess);
  if (failures > 0) return 1;
  CallCollectives(comm, device, (float*)((char*)device + delta));
  CallMessages(comm, device, (float*)((char*)device + delta));
  CallQueries(comm);
  CallWrongly(comm);
  CallOthers(comm, device);
  EXPECT_OK(occlCommDestroy(comm));
  EXPECT_OK(occlCommDestroy(NULL));
  EXPECT(occlCommDestroy(NULL) == occlSuccess);
  EXPECT(orFree(device) == orSuccess);
  if (failures == 0) printf("all calls from C are good\n");
  return failures == 0 ? 0 : 1;
}
