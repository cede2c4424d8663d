// What happens when ranks disagree, are late, abort, leave or die: an error on every rank that is
// concerned, that names what happened, and never a hang.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

using testing::Test;

// The result of an operation, and its message.
struct Outcome {
  occlResult_t result;
  std::string message;
};

Outcome Finish(occlRequest_t request) {
  Outcome outcome = {occlRequestWait(request, 30'000), ""};
  occlResult_t result = occlSuccess;
  const char* message = "";
  EXPECT_EQ(occlRequestGetResult(request, &result, &message), occlSuccess);
  EXPECT_EQ(result, outcome.result);
  outcome.message = message;
  EXPECT_EQ(occlRequestFree(request), occlSuccess);
  return outcome;
}

// Every operation on 64 floats (or `count`), by number, for mutual mismatches. The last are the
// forms with a count for each rank.
constexpr int kOperations = 9;
constexpr int kForms = 14;
occlResult_t CallUneven(int operation, const Rank& rank, void* send, void* recv, size_t block,
                        const occlCallOptions_t* options) {
  std::vector<size_t> counts(rank.nranks, block);
  std::vector<const void*> sends;
  std::vector<void*> recvs;
  for (int r = 0; r < rank.nranks; ++r) {
    sends.push_back(static_cast<char*>(send) + r * block * 4);
    recvs.push_back(static_cast<char*>(recv) + r * block * 4);
  }
  switch (operation) {
    case 9:
      return occlAllGatherv(send, recvs.data(), counts.data(), occlFloat32, rank.comm, rank.stream,
                            options);
    case 10:
      return occlReduceScatterv(sends.data(), recv, counts.data(), occlFloat32, occlSum, rank.comm,
                                rank.stream, options);
    case 11:
      return occlGatherv(send, block, recvs.data(), counts.data(), occlFloat32, 0, rank.comm,
                         rank.stream, options);
    case 12:
      return occlScatterv(sends.data(), counts.data(), recv, block, occlFloat32, 0, rank.comm,
                          rank.stream, options);
    default:
      return occlAllToAllv(sends.data(), counts.data(), recvs.data(), counts.data(), occlFloat32,
                           rank.comm, rank.stream, options);
  }
}

occlResult_t Call(int operation, const Rank& rank, void* send, void* recv, size_t count,
                  const occlCallOptions_t* options) {
  const size_t block = count / rank.nranks;
  switch (operation) {
    case 0:
      return occlAllReduce(send, recv, count, occlFloat32, occlSum, rank.comm, rank.stream,
                           options);
    case 1:
      return occlBroadcast(send, recv, count, occlFloat32, 0, rank.comm, rank.stream, options);
    case 2:
      return occlReduce(send, recv, count, occlFloat32, occlSum, 0, rank.comm, rank.stream,
                        options);
    case 3:
      return occlAllGather(send, recv, block, occlFloat32, rank.comm, rank.stream, options);
    case 4:
      return occlReduceScatter(send, recv, block, occlFloat32, occlSum, rank.comm, rank.stream,
                               options);
    case 5:
      return occlGather(send, recv, block, occlFloat32, 0, rank.comm, rank.stream, options);
    case 6:
      return occlScatter(send, recv, block, occlFloat32, 0, rank.comm, rank.stream, options);
    case 7:
      return occlAllToAll(send, recv, block, occlFloat32, rank.comm, rank.stream, options);
    case 8:
      return occlBarrier(rank.comm, rank.stream, options);
    default:
      return CallUneven(operation, rank, send, recv, block, options);
  }
}

Outcome CallAndFinish(int operation, const Rank& rank, void* send, void* recv, size_t count) {
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  const occlResult_t called = Call(operation, rank, send, recv, count, &options);
  if (called != occlSuccess) return {called, occlGetLastError(nullptr)};
  return Finish(request);
}

TEST(Mismatch, EveryPairOfOperationsIsAnErrorOnBothRanks) {
  for (size_t count : {8, 40'000}) {
    for (int a = 0; a < kForms; ++a) {
      for (int b = 0; b < kForms; ++b) {
        if (a == b) continue;
        RunThreads(2, [&](const Rank& rank) {
          DeviceBuffer send(count * 4), recv(count * 4);
          // Leaves tables of parts behind, which nobody may take for an operation's own.
          for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(CallAndFinish(13, rank, send.device(), recv.device(), count).result,
                      occlSuccess);
          }
          const Outcome outcome =
              CallAndFinish(rank.rank == 0 ? a : b, rank, send.device(), recv.device(), count);
          EXPECT_EQ(outcome.result, occlMismatch) << a << " and " << b << ": " << outcome.message;
          EXPECT_NE(outcome.message.find("operation"), std::string::npos) << outcome.message;
        });
      }
    }
  }
}

// A call that differs by rank in one field.
void ExpectMismatch(
    int nranks, const std::string& field,
    const std::function<occlResult_t(const Rank&, void*, void*, const occlCallOptions_t*)>& call) {
  RunThreads(nranks, [&](const Rank& rank) {
    DeviceBuffer send(4096), recv(4096);
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    const occlResult_t called = call(rank, send.device(), recv.device(), &options);
    const Outcome outcome =
        called == occlSuccess ? Finish(request) : Outcome{called, occlGetLastError(nullptr)};
    EXPECT_EQ(outcome.result, occlMismatch) << field << " on rank " << rank.rank;
    EXPECT_NE(outcome.message.find(field), std::string::npos) << outcome.message;
    occlResult_t error = occlSuccess;
    EXPECT_EQ(occlCommGetAsyncError(rank.comm, &error), occlSuccess);
    EXPECT_EQ(error, occlMismatch);
    EXPECT_EQ(occlBarrier(rank.comm, rank.stream, nullptr), occlMismatch);  // it is dead
  });
}

TEST(Mismatch, NamesTheField) {
  for (int nranks : {2, 3}) {
    ExpectMismatch(nranks, "count", [](const Rank& r, void* s, void* d, auto* o) {
      return occlAllReduce(s, d, 10 + r.rank / (r.nranks - 1), occlInt32, occlSum, r.comm, r.stream,
                           o);
    });
    ExpectMismatch(nranks, "datatype", [](const Rank& r, void* s, void* d, auto* o) {
      return occlAllReduce(s, d, 10, r.rank == 0 ? occlInt32 : occlFloat32, occlSum, r.comm,
                           r.stream, o);
    });
    ExpectMismatch(nranks, "reduce operation", [](const Rank& r, void* s, void* d, auto* o) {
      return occlAllReduce(s, d, 10, occlInt32, r.rank == 0 ? occlSum : occlMax, r.comm, r.stream,
                           o);
    });
    ExpectMismatch(nranks, "splits", [](const Rank& r, void* s, void* d, auto* o) {
      const std::vector<size_t> sends(r.nranks, 2), recvs(r.nranks, 3);
      std::vector<size_t> own_sends = sends, own_recvs = recvs;
      own_sends[r.rank] = own_recvs[r.rank] = 1;
      const std::vector<const void*> from(r.nranks, s);
      std::vector<void*> to;
      for (int i = 0; i < r.nranks; ++i) to.push_back(static_cast<char*>(d) + 64 * i);
      return occlAllToAllv(from.data(), own_sends.data(), to.data(), own_recvs.data(), occlInt32,
                           r.comm, r.stream, o);
    });
  }
}

TEST(Mismatch, NamesTheDatatypeOfAMessageAlsoWhereItsSizeFits) {
  constexpr occlDataType_t kPairs[][2] = {{occlInt32, occlFloat64},
                                          {occlInt32, occlFloat32},
                                          {occlFloat16, occlBfloat16},
                                          {occlBool, occlUint8},
                                          {occlComplex32, occlInt32},
                                          {occlFloat8e4m3fnuz, occlFloat8e5m2fnuz},
                                          {occlFloat8e5m2fnuz, occlFloat8e8m0},
                                          {occlFloat8e8m0, occlFloat4e2m1x2},
                                          {occlFloat4e2m1x2, occlBytes},
                                          {occlBytes, occlInt8}};
  for (const auto& pair : kPairs) {
    ExpectMismatch(2, "datatype", [&](const Rank& r, void* s, void* d, auto* o) {
      return r.rank == 0 ? occlSend(s, 10, pair[0], 1, 0, r.comm, r.stream, o)
                         : occlRecv(d, 10, pair[1], 0, 0, r.comm, r.stream, o);
    });
  }
}

// A program may legally mix messages and collectives, so only the deadline can tell; then both
// sides are named.
TEST(Mismatch, AMessageThatMeetsACollectiveEndsAtTheDeadlineWithBothNamed) {
  static constexpr const char* kNames[kOperations] = {"all_reduce", "broadcast",      "reduce",
                                                      "all_gather", "reduce_scatter", "gather",
                                                      "scatter",    "all_to_all",     "barrier"};
  RankOptions rank_options;
  rank_options.timeout_ms = 150;
  for (bool sends : {true, false}) {
    for (int operation = 0; operation < kOperations; ++operation) {
      RunThreads(
          2,
          [&](const Rank& rank) {
            // Rank 0 is the root: it must need rank 1, or it would be done without it.
            const bool root_gives = operation == 1 || operation == 6;
            const bool collective = rank.rank == (root_gives ? 1 : 0);
            DeviceBuffer send(4000), recv(4000);
            Outcome outcome;
            if (collective) {
              outcome = CallAndFinish(operation, rank, send.device(), recv.device(), 1000);
            } else {
              occlRequest_t request = nullptr;
              occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
              options.request = &request;
              const int peer = 1 - rank.rank;
              ASSERT_EQ(sends ? occlSend(send.device(), 500, occlFloat32, peer, 0, rank.comm,
                                         rank.stream, &options)
                              : occlRecv(recv.device(), 500, occlFloat32, peer, 0, rank.comm,
                                         rank.stream, &options),
                        occlSuccess);
              outcome = Finish(request);
            }
            EXPECT_EQ(outcome.result, occlTimeout) << outcome.message;
            for (const char* name : {kNames[operation], sends ? "send" : "recv"}) {
              EXPECT_NE(outcome.message.find(name), std::string::npos) << outcome.message;
            }
          },
          rank_options);
    }
  }
}

// With more ranks, one that agrees with its root may be through before the others find out.
TEST(Mismatch, OfRootsIsFoundByBoth) {
  ExpectMismatch(2, "root", [](const Rank& r, void* s, void* d, auto* o) {
    return occlBroadcast(s, d, 10, occlInt32, r.rank == 0 ? 0 : 1, r.comm, r.stream, o);
  });
}

TEST(Mismatch, MessageOfAnotherCountFailsBothEnds) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer buffer(400);
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    if (rank.rank == 0) {
      ASSERT_EQ(occlSend(buffer.device(), 50, occlInt32, 1, 0, rank.comm, rank.stream, &options),
                occlSuccess);
    } else {
      ASSERT_EQ(occlRecv(buffer.device(), 60, occlInt32, 0, 0, rank.comm, rank.stream, &options),
                occlSuccess);
    }
    const Outcome outcome = Finish(request);
    EXPECT_EQ(outcome.result, occlMismatch);
    EXPECT_NE(outcome.message.find("60"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("50"), std::string::npos) << outcome.message;
  });
}

TEST(Deadline, NamesWhoDidNotComeAndWhereItIs) {
  RunThreads(3, [](const Rank& rank) {
    DeviceBuffer sum(4);
    ASSERT_EQ(occlBarrier(rank.comm, rank.stream, nullptr), occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    static std::atomic<int> finished{0};
    if (rank.rank == 1) {  // does not come
      const int64_t end_ms = NowMs() + 30'000;
      while (finished.load() < 2 && NowMs() < end_ms) std::this_thread::yield();
      return;
    }
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    options.timeout_ms = 300;
    const int64_t begin_ms = NowMs();
    ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                            rank.stream, &options),
              occlSuccess);
    const Outcome outcome = Finish(request);
    EXPECT_GE(NowMs() - begin_ms, 290);
    EXPECT_EQ(outcome.result, occlTimeout) << outcome.message;
    EXPECT_NE(outcome.message.find("rank(s) 1 (pid "), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("barrier"), std::string::npos) << outcome.message;
    finished.fetch_add(1);
  });
}

TEST(Deadline, AWaitOfItsOwnLeavesTheOperationRunning) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer message(4);
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    static std::atomic<bool> waited{false};
    if (rank.rank == 0) {
      ASSERT_EQ(occlRecv(message.device(), 1, occlInt32, 1, 0, rank.comm, rank.stream, &options),
                occlSuccess);
      EXPECT_EQ(occlRequestWait(request, 50), occlTimeout);
      int done = 1;
      EXPECT_EQ(occlRequestTest(request, &done), occlSuccess);
      EXPECT_EQ(done, 0);
      waited.store(true);
    } else {
      const int64_t end_ms = NowMs() + 30'000;
      while (!waited.load() && NowMs() < end_ms) std::this_thread::yield();
      ASSERT_EQ(occlSend(message.device(), 1, occlInt32, 0, 0, rank.comm, rank.stream, &options),
                occlSuccess);
    }
    EXPECT_EQ(Finish(request).result, occlSuccess);
  });
}

TEST(Abort, FromAnotherThreadEndsAllRanks) {
  for (int aborting : {0, 2}) {
    RunThreads(3, [&](const Rank& rank) {
      DeviceBuffer sum(4);
      occlRequest_t request = nullptr;
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      options.request = &request;
      std::thread aborter;
      if (rank.rank == aborting) {
        aborter = std::thread(
            [&] { EXPECT_EQ(occlCommAbort(rank.comm, "the test says so"), occlSuccess); });
      }
      if (rank.rank != 1) {  // rank 1 never comes
        const occlResult_t called = occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum,
                                                  rank.comm, rank.stream, &options);
        const Outcome outcome =
            called == occlSuccess ? Finish(request) : Outcome{called, occlGetLastError(nullptr)};
        EXPECT_EQ(outcome.result, occlAborted) << outcome.message;
        EXPECT_NE(outcome.message.find("the test says so"), std::string::npos) << outcome.message;
      }
      if (aborter.joinable()) aborter.join();
    });
  }
}

TEST(Destroy, WithPendingOperationsFailsThePeersThatNeedThem) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer sum(4);
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    MemoryStore* const unused = nullptr;
    static_cast<void>(unused);
    if (rank.rank == 0) return;  // destroys at once, having done nothing
    ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                            rank.stream, &options),
              occlSuccess);
    const Outcome outcome = Finish(request);
    EXPECT_EQ(outcome.result, occlRemoteError) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 0 (pid "), std::string::npos) << outcome.message;
  });
}

TEST(Arguments, AreRefusedWithTheCommunicatorStillGood) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer buffer(400);
    int host = 0;
    unsigned char* bytes = buffer.device_bytes();
    const auto all_reduce = [&](const void* s, void* d, size_t n, int type, int op) {
      return occlAllReduce(s, d, n, static_cast<occlDataType_t>(type), static_cast<occlRedOp_t>(op),
                           rank.comm, rank.stream, nullptr);
    };
    EXPECT_EQ(all_reduce(&host, &host, 1, occlInt32, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes, 1, 31, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes, 1, occlFloat32, occlBand), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes, 1, occlBytes, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes, 1, occlInt32, 77), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes + 1, bytes + 1, 1, occlInt32, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes + 4, 2, occlInt32, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(bytes, bytes, SIZE_MAX / 2, occlInt32, occlSum), occlInvalidArgument);
    EXPECT_EQ(all_reduce(nullptr, nullptr, 1, occlInt32, occlSum), occlInvalidArgument);
    EXPECT_EQ(occlBroadcast(bytes, bytes, 1, occlInt32, 2, rank.comm, rank.stream, nullptr),
              occlInvalidArgument);
    EXPECT_EQ(occlSend(bytes, 1, occlInt32, 1, -1, rank.comm, rank.stream, nullptr),
              occlInvalidArgument);
    EXPECT_EQ(occlAllReduce(bytes, bytes, 1, occlInt32, occlSum, nullptr, rank.stream, nullptr),
              occlInvalidArgument);
    *buffer.as<int32_t>() = rank.rank + 5;
    EXPECT_EQ(all_reduce(bytes, bytes, 1, occlInt32, occlSum), occlSuccess);
    EXPECT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    EXPECT_EQ(*buffer.as<int32_t>(), 11);
  });
}

TEST(Init, RefusesBadNumbersAndTimesOutNamingTheMissing) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  occlComm_t comm = nullptr;
  EXPECT_EQ(occlCommInitRankStore(&comm, 2, 2, &store, nullptr), occlInvalidArgument);
  EXPECT_EQ(occlCommInitRankStore(&comm, 0, 0, &store, nullptr), occlInvalidArgument);
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.initTimeout_ms = 200;
  EXPECT_EQ(occlCommInitRankStore(&comm, 3, 0, &store, &config), occlTimeout);
  EXPECT_NE(std::string(occlGetLastError(nullptr)).find("1, 2"), std::string::npos)
      << occlGetLastError(nullptr);
}

TEST(Init, TwiceTheSameRankFailsAll) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  std::vector<std::thread> threads;
  for (int rank : {0, 1, 1}) {
    threads.emplace_back([&, rank] {
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.initTimeout_ms = 5'000;
      occlComm_t comm = nullptr;
      EXPECT_EQ(occlCommInitRankStore(&comm, 3, rank, &store, &config), occlMismatch)
          << occlGetLastError(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, OverAndOverInOneStoreWorks) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        occlConfig_t config = OCCL_CONFIG_INITIALIZER;
        config.initTimeout_ms = 20'000;
        occlComm_t comm = nullptr;
        ASSERT_EQ(occlCommInitRankStore(&comm, 2, rank, &store, &config), occlSuccess)
            << occlGetLastError(nullptr);
        EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace occl_conformance
