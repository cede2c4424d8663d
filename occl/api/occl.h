/* OCCL: collective communication for openreg devices. The C API.
 *
 * It follows NCCL's API (prefix `occl` for `nccl`); where not, the comment says so. C11 and C++.
 *
 * CONVENTIONS
 *   - Counts are ELEMENTS of the given datatype. Times are milliseconds unless named _ns.
 *   - Buffers are device memory of the communicator's device, aligned to their datatype. Send
 * buffers are not written, receive buffers are written only in the ranges named.
 *   - In place: allowed where a function says so, with exactly the address it names. Any other
 *     overlap of send and receive ranges is occlInvalidArgument.
 *   - Operations are stream-ordered on `stream` (NULL: the default stream of the communicator's
 *     device): they start when the work queued there before has run, and the call returns without
 *     waiting for peers. The operation is complete when this rank has its result and every peer
 * that reads this rank's buffers has finished: the buffers may then be reused.
 *   - All ranks call the collectives of a communicator in the same order. Each call must be made by
 *     every rank of the communicator with the same datatype, counts, operation and root; a mismatch
 *     is detected before data moves and is an error (occlMismatch) on all ranks concerned.
 *   - Sends and receives match in order per (peer, direction, tag), not queued behind collectives.
 *   - Any function may be called from any thread; the caller orders calls on one communicator.
 *   - Every function checks its arguments before anything is sent (of buffers: that all of it is
 *     memory of the device, not whose allocation) and returns occlInvalidArgument /
 *     occlInvalidUsage with the communicator still good. Errors found later are asynchronous: the
 *     communicator is then dead (occlCommGetAsyncError, and each later call returns that error),
 *     its operations end, other communicators are not affected, and the stream goes on.
 * WHO IS TO BLAME: occlInvalidArgument, occlInvalidUsage, occlMismatch: the caller.
 * occlRemoteError: a peer died. occlTimeout: a peer did not come. occlAborted: somebody aborted.
 * occlSystemError: the system. occlInternalError: this library.
 * DETERMINISM: reductions are computed in rank order, 16-bit floats accumulated in float32 and
 * rounded once; the result is bitwise equal on all ranks, in every run, for every algorithm.
 *
 * ENVIRONMENT (read once per process)
 *   - OCCL_DEBUG: VERSION, WARN (default), INFO, TRACE, each with what comes before it; to stderr.
 *   - OCCL_DEBUG_SUBSYS: what INFO and TRACE show, of INIT, COLL, P2P, SHM, ENV, ALL, separated by
 *     commas (default INIT,ENV); ^ before: all but these. COLL, P2P: operations (TRACE: and ends).
 *   - OCCL_DEBUG_FILE: a file to append to instead; %h is the host's name, %p the process id.
 *   - OCCL_ALGO: oneshot, direct or staged, on all ranks: taken wherever it fits, not by size.
 *   - OCCL_TIMEOUT_MS: default of occlConfig_t::timeout_ms.
 *   - OCCL_CHECK_INTERVAL_MS: how often who waits looks whether its peers still live (default 50).
 */
#ifndef OCCL_API_OCCL_H_
#define OCCL_API_OCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/openreg.h"

#define OCCL_VERSION_MAJOR 0
#define OCCL_VERSION_MINOR 1
#define OCCL_VERSION_PATCH 0
#define OCCL_VERSION (OCCL_VERSION_MAJOR * 10000 + OCCL_VERSION_MINOR * 100 + OCCL_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct occlComm* occlComm_t;
typedef struct occlRequest* occlRequest_t;

/* ----------------------------------------------------------------------------------- results */
typedef enum occlResult { /* 0..7 are NCCL's */
                          occlSuccess = 0,
                          occlUnhandledDeviceError = 1, /* a call of the openreg runtime failed */
                          occlSystemError = 2,
                          occlInternalError = 3,
                          occlInvalidArgument = 4,
                          occlInvalidUsage = 5,
                          occlRemoteError = 6, /* a peer's process has ended */
                          occlInProgress = 7,
                          occlTimeout = 8,
                          occlMismatch = 9, /* ranks disagree about an operation */
                          occlAborted = 10,
                          occlNotSupported = 11
} occlResult_t;

/* The code's sentence, static storage. Never NULL. */
const char* occlGetErrorString(occlResult_t result);
/* comm NULL: the last failure of the calling thread's own calls. Otherwise what made the
 * communicator fail (operation, sequence number, ranks, expected and found). Valid until the thread
 * calls it again. Never NULL, "" if there was no failure. */
const char* occlGetLastError(occlComm_t comm);
occlResult_t occlGetVersion(int* version);

/* --------------------------------------------------------------------- datatypes, reductions */

typedef enum occlDataType {
  occlInt8 = 0,
  occlUint8 = 1,
  occlInt32 = 2,
  occlUint32 = 3,
  occlInt64 = 4,
  occlUint64 = 5,
  occlFloat16 = 6,
  occlFloat32 = 7,
  occlFloat64 = 8,
  occlBfloat16 = 9, /* 0..9 are NCCL's */
  occlInt16 = 10,
  occlUint16 = 11,
  occlBool = 12,       /* one byte, 0 or 1 */
  occlComplex64 = 13,  /* two float32 */
  occlComplex128 = 14, /* two float64 */
  occlComplex32 = 15,  /* two float16 */
  occlFloat8e4m3 = 16, /* from here on: moved, never reduced */
  occlFloat8e5m2 = 17,
  occlFloat8e4m3fnuz = 18,
  occlFloat8e5m2fnuz = 19,
  occlFloat8e8m0 = 20,
  occlFloat4e2m1x2 = 21, /* two in a byte */
  occlBytes = 22,
  occlNumTypes = 23
} occlDataType_t;

/* Which operation makes sense for which datatype:
 *   SUM, PROD   all but float8, float4 and bytes; of bool SUM is "or", PROD is "and"
 *   MIN, MAX    integers, bool, real floats; NaN wins over any number, as in torch
 *   AVG         all that SUM takes but bool: the sum divided once; of integers, toward zero
 *   BAND, BOR, BXOR   integers, bool
 *   pre-multiplied sum  floats and complex
 * Anything else is occlInvalidArgument. Integers wrap around. */
typedef enum occlRedOp {
  occlSum = 0,
  occlProd = 1,
  occlMax = 2,
  occlMin = 3,
  occlAvg = 4, /* 0..4 are NCCL's */
  occlBand = 5,
  occlBor = 6,
  occlBxor = 7,
  occlNumOps = 8,
  occlMaxRedOp = 0x7fffffff /* values from occlNumOps on: made by occlRedOpCreatePreMulSum */
} occlRedOp_t;
/* Size of one element in bytes; 0 for an unknown datatype. */
size_t occlDataTypeSize(occlDataType_t datatype);

/* An operation that multiplies each rank's input by *scalar (host memory, of `datatype`, read
 * before the call returns) and sums. Only for `datatype` and this communicator. */
occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar, occlDataType_t datatype,
                                      occlComm_t comm);
occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm);

/* ----------------------------------------------------------------- communicators: life cycle */

#define OCCL_UNIQUE_ID_BYTES 128
typedef struct occlUniqueId {
  char internal[OCCL_UNIQUE_ID_BYTES];
} occlUniqueId;

/* A store of keys that all ranks share, given by the caller (torch's c10d::Store, MPI, a file),
 * used only inside the call it is passed to, on the calling thread. Values are at most 4096 bytes.
 * `get` waits for the key for at most timeout_ms (occlTimeout). `add` adds to the number under the
 * key (0 at first), at once for all ranks, and gives the sum; NULL without occlConfig_t::early. */
typedef struct occlStore {
  void* context;
  occlResult_t (*set)(void* context, const char* key, const void* value, size_t size);
  occlResult_t (*get)(void* context, const char* key, void* value, size_t capacity, size_t* size,
                      int64_t timeout_ms);
  occlResult_t (*add)(void* context, const char* key, int64_t delta, int64_t* sum);
} occlStore_t;

typedef struct occlConfig {
  size_t structSize;      /* sizeof(occlConfig_t) */
  unsigned version;       /* OCCL_VERSION of the caller's header */
  int64_t timeout_ms;     /* of each operation; default 30 minutes; < 0: none */
  int64_t initTimeout_ms; /* of init, split and shrink; default: 5 minutes */
  const char* name;       /* shown in errors and logs, copied; NULL: "occl<n>" */
  int device;             /* default: the current device */
  int early;              /* 1: init in a store does not wait for the other ranks */
  const char* members;    /* e.g. "4, 7": text that must be the same on all ranks; copied */
} occlConfig_t;
#define OCCL_CONFIG_INITIALIZER \
  {sizeof(occlConfig_t), OCCL_VERSION, INT64_MIN, INT64_MIN, NULL, -1, 0, NULL}

/* A process that calls occlGetUniqueId serves the rendezvous of this id until nranks have come or
 * it ends; the id is then spread by the caller. Same host only: other hosts use a store. */
occlResult_t occlGetUniqueId(occlUniqueId* uniqueId);
/* Blocks until all ranks have joined (initTimeout_ms). Collective. config NULL: defaults. Errors:
 * occlTimeout (names the ranks that did not come; one that died before it reached rank 0 is among
 * them), occlRemoteError (a rank died that had come), occlNotSupported (ranks on two hosts),
 * occlMismatch (nranks, members, version, rank twice), occlInvalidArgument (0 <= rank < nranks). */
occlResult_t occlCommInitRank(occlComm_t* comm, int nranks, occlUniqueId uniqueId, int rank,
                              const occlConfig_t* config);
/* As above, meeting in a store. Keys are prefixed by the caller's store, or by config->name. With
 * config->early it returns without waiting: sends and receives need their two ranks only, and the
 * first collective, split or shrink of a rank blocks until all ranks have joined, as
 * occlCommAwaitRanks does with initTimeout_ms. All ranks give the same `early`. */
occlResult_t occlCommInitRankStore(occlComm_t* comm, int nranks, int rank, const occlStore_t* store,
                                   const occlConfig_t* config);
/* Blocks until all ranks of a communicator that was made `early` have joined, at most timeout_ms
 * (< 0: for ever); returns at once for any other. store: that of init, which then also tells of
 * ranks that cannot come; NULL: the timeout does. Errors: occlTimeout (names the ranks that did not
 * come; the communicator is still good), and those of init. */
occlResult_t occlCommAwaitRanks(occlComm_t comm, const occlStore_t* store, int64_t timeout_ms);
#define OCCL_SPLIT_NOCOLOR (-1)
/* Collective over comm; needs no store. Ranks of one color (>= 0) form a new communicator, ordered
 * by (key, rank). OCCL_SPLIT_NOCOLOR: takes part and gets NULL. Blocks. */
occlResult_t occlCommSplit(occlComm_t comm, int color, int key, occlComm_t* newcomm,
                           const occlConfig_t* config);
/* Collective over the ranks of comm that are not excluded (dead ones, or others); comm may have
 * failed. The survivors get a working communicator, ranks in order. Blocks; needs no store. */
#define OCCL_SHRINK_DEFAULT 0
#define OCCL_SHRINK_ABORT 1 /* first abort what is in flight on comm */
occlResult_t occlCommShrink(occlComm_t comm, const int* excludeRanks, int excludeCount,
                            occlComm_t* newcomm, const occlConfig_t* config, int flags);
/* Waits (timeout of the communicator) until this rank's operations are complete; more may come. */
occlResult_t occlCommFinalize(occlComm_t comm);
/* Frees the communicator. Pending operations are aborted first, on this rank; peers that need them
 * get occlRemoteError naming this rank. Not collective, does not block on peers. NULL: no-op. */
occlResult_t occlCommDestroy(occlComm_t comm);
/* From any thread: all operations in flight end with occlAborted on this rank and, within a second,
 * on all others; later ones are refused. It must still be destroyed. `reason` may be NULL. */
occlResult_t occlCommAbort(occlComm_t comm, const char* reason);
/* The same for a rank that has not joined and will not, with the arguments of init in a store; also
 * for ranks that come later. Waits for the store only, as that does, and gives its errors. */
occlResult_t occlCommAbortInit(int nranks, int rank, const occlStore_t* store,
                               const occlConfig_t* config, const char* reason);
/* For a rank that only leaves a communicator made `early`, before it has joined: what needs the
 * rank ends with occlRemoteError, messages between others go on. hasJoined: just before
 * occlCommDestroy, if not all have joined; so that ranks which come when the processes of all that
 * had joined have ended know that they left in order. These ranks then go on among themselves. */
occlResult_t occlCommLeaveInit(int nranks, int rank, const occlStore_t* store,
                               const occlConfig_t* config, int hasJoined);
/* *all = 1 once each rank has joined, or has left; communicators not made `early`: 1. */
occlResult_t occlCommAllJoined(occlComm_t comm, int* all);
/* occlSuccess while the communicator is good, else what made it fail. Never blocks. */
occlResult_t occlCommGetAsyncError(occlComm_t comm, occlResult_t* asyncError);
occlResult_t occlCommCount(occlComm_t comm, int* count);
occlResult_t occlCommDevice(occlComm_t comm, int* device);
occlResult_t occlCommUserRank(occlComm_t comm, int* rank);
/* Process id of a rank, as it told at init, or occlCommExpectRank; 0 if it has not joined yet. */
occlResult_t occlCommGetRankPid(occlComm_t comm, int rank, int64_t* pid);
/* Says which process a rank that has not joined yet is going to be: what needs that rank then ends
 * with occlRemoteError when the process ends, else at its timeout. pidfd: of pidfd_open(2), copied;
 * -1: it has ended already. Does not block. Errors: occlInvalidArgument, occlSystemError. */
occlResult_t occlCommExpectRank(occlComm_t comm, int rank, int64_t pid, int pidfd);
/* 1 in dead[r] for each rank whose process has ended. */
occlResult_t occlCommGetDeadRanks(occlComm_t comm, int* dead /* [nranks] */);
occlResult_t occlCommSetTimeout(occlComm_t comm, int64_t timeout_ms);

/* ---------------------------------------------------------------------------- calls, requests */

#define OCCL_CALL_DEFAULT 0u
#define OCCL_CALL_ASYNC 1u /* do not begin on the calling thread: the stream's worker does all */

/* Last argument of every operation; NULL: defaults. NCCL has no counterpart. */
typedef struct occlCallOptions {
  size_t structSize;      /* sizeof(occlCallOptions_t) */
  int64_t timeout_ms;     /* of this operation; INT64_MIN: the communicator's; < 0: none */
  unsigned flags;         /* OCCL_CALL_* */
  occlRequest_t* request; /* out, if not NULL: a handle of the operation; free it once */
} occlCallOptions_t;
#define OCCL_CALL_OPTIONS_INITIALIZER \
  {sizeof(occlCallOptions_t), INT64_MIN, OCCL_CALL_DEFAULT, NULL}

/* *done = 1 when complete, successfully or not. Does not block, does not drive anything. Inside a
 * group a request belongs to its own operation and may complete before the rest of the group. */
occlResult_t occlRequestTest(occlRequest_t request, int* done);
/* Blocks the host until complete, at most timeout_ms (< 0: as long as the operation's own
 * deadline). Returns the operation's result; occlTimeout with the operation still running if only
 * this wait's time is over (then occlRequestTest says 0). */
occlResult_t occlRequestWait(occlRequest_t request, int64_t timeout_ms);
/* The result (occlInProgress while running) and its message (valid until the request is freed). */
occlResult_t occlRequestGetResult(occlRequest_t request, occlResult_t* result,
                                  const char** message);
/* Start and end of the data movement, CLOCK_MONOTONIC; occlInvalidUsage before completion. */
occlResult_t occlRequestGetTimes(occlRequest_t request, int64_t* start_ns, int64_t* end_ns);
/* Sender's rank of a completed receive. */
occlResult_t occlRequestGetSource(occlRequest_t request, int* source);
/* Frees the handle; the operation goes on. */
occlResult_t occlRequestFree(occlRequest_t request);

/* -------------------------------------------------------------------------------- collectives
 * `count` may be 0: the ranks still agree, nothing is read or written. */
/* In place: sendbuff == recvbuff. */
occlResult_t occlAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                           orStream_t stream, const occlCallOptions_t* options);
/* sendbuff is used on root only. In place: sendbuff == recvbuff. */
occlResult_t occlBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options);
/* recvbuff is used on root only. In place on root: sendbuff == recvbuff. */
occlResult_t occlReduce(const void* sendbuff, void* recvbuff, size_t count, occlDataType_t datatype,
                        occlRedOp_t op, int root, occlComm_t comm, orStream_t stream,
                        const occlCallOptions_t* options);
/* recvbuff: nranks * sendcount. In place: sendbuff == recvbuff + rank * sendcount. */
occlResult_t occlAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options);
/* recvbuffs[r] takes recvcounts[r] elements of rank r (arrays of nranks, read before the call
 * returns). recvcounts are equal on all ranks, and recvcounts[rank] is what this rank sends. In
 * place: sendbuff == recvbuffs[rank]. */
occlResult_t occlAllGatherv(const void* sendbuff, void* const* recvbuffs, const size_t* recvcounts,
                            occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                            const occlCallOptions_t* options);
/* sendbuff: nranks * recvcount. In place: recvbuff == sendbuff + rank * recvcount. */
occlResult_t occlReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                               orStream_t stream, const occlCallOptions_t* options);
/* sendbuffs[r]: counts[r] elements whose reduction goes to rank r. In place:
 * recvbuff == sendbuffs[rank]. */
occlResult_t occlReduceScatterv(const void* const* sendbuffs, void* recvbuff, const size_t* counts,
                                occlDataType_t datatype, occlRedOp_t op, occlComm_t comm,
                                orStream_t stream, const occlCallOptions_t* options);
/* recvbuff (root only): nranks * sendcount. In place: sendbuff == recvbuff + root * sendcount. */
occlResult_t occlGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                        occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                        const occlCallOptions_t* options);
/* recvbuffs and recvcounts on root only; rank r sends sendcount == root's recvcounts[r]. */
occlResult_t occlGatherv(const void* sendbuff, size_t sendcount, void* const* recvbuffs,
                         const size_t* recvcounts, occlDataType_t datatype, int root,
                         occlComm_t comm, orStream_t stream, const occlCallOptions_t* options);
/* sendbuff (root only): nranks * recvcount. In place: recvbuff == sendbuff + root * recvcount. */
occlResult_t occlScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                         occlDataType_t datatype, int root, occlComm_t comm, orStream_t stream,
                         const occlCallOptions_t* options);
occlResult_t occlScatterv(const void* const* sendbuffs, const size_t* sendcounts, void* recvbuff,
                          size_t recvcount, occlDataType_t datatype, int root, occlComm_t comm,
                          orStream_t stream, const occlCallOptions_t* options);
/* Block r of sendbuff goes to block `rank` of rank r's recvbuff; nranks * count. Not in place. */
occlResult_t occlAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                          occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                          const occlCallOptions_t* options);
/* sendcounts[r] on this rank == recvcounts[this rank] on rank r. Not in place. */
occlResult_t occlAllToAllv(const void* const* sendbuffs, const size_t* sendcounts,
                           void* const* recvbuffs, const size_t* recvcounts,
                           occlDataType_t datatype, occlComm_t comm, orStream_t stream,
                           const occlCallOptions_t* options);
/* No rank's barrier is complete before all have begun theirs. Stream-ordered like the rest: wait on
 * the request or the stream to block the host. */
occlResult_t occlBarrier(occlComm_t comm, orStream_t stream, const occlCallOptions_t* options);

/* ----------------------------------------------------------------------------- point to point */

#define OCCL_ANY_SOURCE (-1)
#define OCCL_ANY_TAG (-1)
/* Complete when the receiver has read the data. Sending to oneself needs the matching receive in
 * the same group, or on another stream. tag >= 0. Of sends in one group, or on several streams, at
 * least 16 from one rank to another may be on their way unreceived; one behind them waits for its
 * place like one whose receive has not come, on its stream and under its deadline. */
occlResult_t occlSend(const void* sendbuff, size_t count, occlDataType_t datatype, int peer,
                      int tag, occlComm_t comm, orStream_t stream,
                      const occlCallOptions_t* options);
/* peer may be OCCL_ANY_SOURCE (occlRequestGetSource then tells), tag may be OCCL_ANY_TAG. Count and
 * datatype must equal the sender's: otherwise occlMismatch on both. */
occlResult_t occlRecv(void* recvbuff, size_t count, occlDataType_t datatype, int peer, int tag,
                      occlComm_t comm, orStream_t stream, const occlCallOptions_t* options);

/* -------------------------------------------------------------------------------------- groups */

/* Calls between start and end are issued together at the outermost end; any order inside a group is
 * free of deadlock, and a matched pair completes though another is unmatched. Per thread; several
 * communicators and streams may take part. An argument error inside the group is returned by that
 * call and by occlGroupEnd, and none of the group is issued. */
occlResult_t occlGroupStart(void);
occlResult_t occlGroupEnd(void);

/* -------------------------------------------------------------------------------------- memory */

/* Device memory of the current device that suits communication. */
occlResult_t occlMemAlloc(void** ptr, size_t size_bytes);
occlResult_t occlMemFree(void* ptr);
/* Registration gives all pages of the range memory beforehand, so that the first operation on it
 * does not pay for that; each peer still maps the pages it reads at its first read. Optional. Local
 * call: blocks for the time of touching the range once. The handle is freed by occlCommDeregister
 * or with the communicator; the memory stays the caller's. */
occlResult_t occlCommRegister(occlComm_t comm, void* buff, size_t size_bytes, void** handle);
occlResult_t occlCommDeregister(occlComm_t comm, void* handle);

/* ------------------------------------------------------------------------- statistics, history */

typedef struct occlStats {
  size_t structSize;         /* in: sizeof(occlStats_t) */
  uint64_t operations;       /* completed successfully by this rank */
  uint64_t bytesMoved;       /* read from peers or sent to them */
  uint64_t waitTime_ns;      /* asleep, waiting for peers (a wait begins with a short spin) */
  uint64_t inlineOperations; /* finished on the calling thread */
  uint64_t oneshotOperations, directOperations, stagedOperations; /* collectives, by algorithm */
} occlStats_t;
occlResult_t occlCommGetStats(occlComm_t comm, occlStats_t* stats);

typedef struct occlOpRecord {
  uint64_t sequence;  /* of the collective or, per peer, of the send or receive; from 1 */
  char operation[24]; /* "all_reduce", "send", ... */
  occlDataType_t datatype;
  occlRedOp_t op;
  int root; /* root or peer, -1 if none */
  int tag;  /* -1 if none */
  uint64_t count;
  int state;                               /* 0 queued, 1 started, 2 complete, 3 failed */
  int64_t queued_ns, started_ns, ended_ns; /* CLOCK_MONOTONIC, 0 if not yet */
} occlOpRecord_t;
/* The last operations of any rank, oldest first, read from the shared control segment: works while
 * ranks hang, and after they have died. *n: in: capacity, out: how many. At most 64 are kept per
 * rank. */
occlResult_t occlCommGetHistory(occlComm_t comm, int rank, occlOpRecord_t* records, size_t* n);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OCCL_API_OCCL_H_ */
