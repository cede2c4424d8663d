// Communicators: queries, splitting and shrinking, several at once, what they tell about
// themselves; pre-multiplied sums and registrations.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

// The sum of (rank + 1) over a communicator, and that it is right.
void ExpectWorks(occlComm_t comm, orStream_t stream) {
  int rank = -1, nranks = 0;
  ASSERT_EQ(occlCommUserRank(comm, &rank), occlSuccess);
  ASSERT_EQ(occlCommCount(comm, &nranks), occlSuccess);
  DeviceBuffer sum(4);
  *sum.as<int32_t>() = rank + 1;
  ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, comm, stream, nullptr),
            occlSuccess)
      << occlGetLastError(nullptr);
  ASSERT_EQ(orStreamSynchronizeTimeout(stream, 30'000), orSuccess);
  EXPECT_EQ(*sum.as<int32_t>(), nranks * (nranks + 1) / 2);
}

TEST(Communicators, TellWhoTheyAre) {
  RunThreads(3, [](const Rank& rank) {
    int number = -1, devices = 0;
    EXPECT_EQ(occlCommCount(rank.comm, &number), occlSuccess);
    EXPECT_EQ(number, 3);
    EXPECT_EQ(occlCommUserRank(rank.comm, &number), occlSuccess);
    EXPECT_EQ(number, rank.rank);
    ASSERT_EQ(orGetDeviceCount(&devices), orSuccess);
    EXPECT_EQ(occlCommDevice(rank.comm, &number), occlSuccess);
    EXPECT_EQ(number, rank.rank % devices);
    int64_t pid = 0;
    EXPECT_EQ(occlCommGetRankPid(rank.comm, 1, &pid), occlSuccess);
    EXPECT_EQ(pid, getpid());
    EXPECT_EQ(occlCommGetRankPid(rank.comm, 3, &pid), occlInvalidArgument);
    int dead[3] = {7, 7, 7};
    EXPECT_EQ(occlCommGetDeadRanks(rank.comm, dead), occlSuccess);
    EXPECT_EQ(dead[0] + dead[1] + dead[2], 0);
    EXPECT_STREQ(occlGetLastError(rank.comm), "");
  });
}

TEST(Split, MakesAWorkingCommunicatorForEachColor) {
  RunThreads(5, [](const Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      const int color = rank.rank == 4 ? OCCL_SPLIT_NOCOLOR : rank.rank % 2;
      occlComm_t half = nullptr;
      ASSERT_EQ(occlCommSplit(rank.comm, color, -rank.rank, &half, nullptr), occlSuccess)
          << occlGetLastError(nullptr);
      if (color == OCCL_SPLIT_NOCOLOR) {
        EXPECT_EQ(half, nullptr);
      } else {
        int number = -1;
        EXPECT_EQ(occlCommCount(half, &number), occlSuccess);
        EXPECT_EQ(number, 2);
        EXPECT_EQ(occlCommUserRank(half, &number), occlSuccess);
        EXPECT_EQ(number, rank.rank < 2 ? 1 : 0);  // ordered by key, which falls
        ExpectWorks(half, rank.stream);
        EXPECT_EQ(occlCommDestroy(half), occlSuccess);
      }
      ExpectWorks(rank.comm, rank.stream);
    }
  });
}

TEST(Split, ThatAnotherRankHasGivenUpIsAnError) {
  SharedStore marks;
  RunThreads(2, [&](const Rank& rank) {
    occlComm_t made = nullptr;
    if (rank.rank == 1) {
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.initTimeout_ms = 50;
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(occlCommSplit(rank.comm, 0, 1, &made, &config), occlTimeout);
      }
      marks.Tell("given up");
      EXPECT_TRUE(marks.Await("over"));
    } else {
      EXPECT_TRUE(marks.Await("given up"));
      EXPECT_EQ(occlCommSplit(rank.comm, 0, 0, &made, nullptr), occlRemoteError);
      const std::string message = occlGetLastError(nullptr);
      EXPECT_NE(message.find("has given it up, and is in split #3"), std::string::npos) << message;
      marks.Tell("over");
    }
  });
}

TEST(Shrink, GoesOnWithoutTheExcluded) {
  RunThreads(4, [](const Rank& rank) {
    if (rank.rank == 2) return;
    EXPECT_EQ(occlCommAbort(rank.comm, "to see it shrink"), occlSuccess);
    const int excluded[] = {2};
    occlComm_t rest = nullptr;
    ASSERT_EQ(occlCommShrink(rank.comm, excluded, 1, &rest, nullptr, OCCL_SHRINK_DEFAULT),
              occlSuccess)
        << occlGetLastError(nullptr);
    int number = -1;
    EXPECT_EQ(occlCommUserRank(rest, &number), occlSuccess);
    EXPECT_EQ(number, rank.rank > 2 ? rank.rank - 1 : rank.rank);
    ExpectWorks(rest, rank.stream);
    EXPECT_EQ(occlCommDestroy(rest), occlSuccess);
  });
}

TEST(Communicators, LiveOnWhenAnotherFails) {
  RunThreads(2, [](const Rank& rank) {
    occlComm_t other = nullptr;
    ASSERT_EQ(occlCommSplit(rank.comm, 0, rank.rank, &other, nullptr), occlSuccess);
    EXPECT_EQ(occlCommAbort(other, nullptr), occlSuccess);
    occlResult_t error = occlSuccess;
    EXPECT_EQ(occlCommGetAsyncError(other, &error), occlSuccess);
    EXPECT_EQ(error, occlAborted);
    EXPECT_EQ(occlBarrier(other, rank.stream, nullptr), occlAborted);
    ExpectWorks(rank.comm, rank.stream);
    EXPECT_EQ(occlCommDestroy(other), occlSuccess);
  });
}

TEST(Communicators, KeepTheirOrderAcrossStreams) {
  RunThreads(3, [](const Rank& rank) {
    constexpr int kCalls = 40;
    orStream_t other;
    ASSERT_EQ(orStreamCreate(&other), orSuccess);
    DeviceBuffer values(kCalls * 4);
    for (int i = 0; i < kCalls; ++i) {
      values.as<int32_t>()[i] = i * (rank.rank + 1);
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      if (i % 3 == 0) options.flags = OCCL_CALL_ASYNC;
      void* at = values.device_bytes() + i * 4;
      ASSERT_EQ(occlAllReduce(at, at, 1, occlInt32, occlSum, rank.comm,
                              (i + rank.rank) % 2 == 0 ? rank.stream : other, &options),
                occlSuccess);
    }
    ASSERT_EQ(occlCommFinalize(rank.comm), occlSuccess);
    for (int i = 0; i < kCalls; ++i) ASSERT_EQ(values.as<int32_t>()[i], 6 * i);
    ASSERT_EQ(orStreamDestroy(other), orSuccess);
  });
}

TEST(Communicators, WaitForWorkQueuedBefore) {
  RunThreads(2, [](const Rank& rank) {
    constexpr size_t kCount = 100'000;
    DeviceBuffer values(kCount * 4);
    std::memset(values.host(), 0xff, kCount * 4);
    for (int round = 0; round < 5; ++round) {
      ASSERT_EQ(orMemsetAsync(values.device(), round + rank.rank, kCount * 4, rank.stream),
                orSuccess);
      ASSERT_EQ(occlAllReduce(values.device(), values.device(), kCount * 4, occlUint8, occlMax,
                              rank.comm, rank.stream, nullptr),
                occlSuccess);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
      for (size_t i = 0; i < kCount * 4; ++i) ASSERT_EQ(values.host()[i], round + 1);
    }
  });
}

TEST(History, ShowsTheLastOperationsOfEveryRank) {
  RunThreads(2, [](const Rank& rank) {
    for (int i = 0; i < 70; ++i) ExpectWorks(rank.comm, rank.stream);
    ASSERT_EQ(occlBarrier(rank.comm, rank.stream, nullptr), occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    std::vector<occlOpRecord_t> records(100);
    size_t n = records.size();
    ASSERT_EQ(occlCommGetHistory(rank.comm, rank.rank, records.data(), &n), occlSuccess);
    ASSERT_EQ(n, 64u);
    EXPECT_EQ(records[63].sequence, 71u);
    EXPECT_STREQ(records[63].operation, "barrier");
    EXPECT_EQ(records[63].state, 2);
    EXPECT_LE(records[63].queued_ns, records[63].started_ns);
    EXPECT_LE(records[63].started_ns, records[63].ended_ns);
    EXPECT_EQ(records[0].sequence, 8u);
    EXPECT_STREQ(records[0].operation, "all_reduce");
    EXPECT_EQ(records[0].count, 1u);
    EXPECT_EQ(records[0].datatype, occlInt32);
    n = 1;
    ASSERT_EQ(occlCommGetHistory(rank.comm, 1 - rank.rank, records.data(), &n), occlSuccess);
    EXPECT_EQ(n, 1u);
    EXPECT_STREQ(records[0].operation, "barrier");
  });
}

TEST(Statistics, CountOperationsAndBytes) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer values(400'000), all(800'000);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(occlAllGather(values.device(), all.device(), 100'000, occlInt32, rank.comm,
                              rank.stream, nullptr),
                occlSuccess);
    }
    ASSERT_EQ(occlCommFinalize(rank.comm), occlSuccess);
    occlStats_t stats;
    stats.structSize = sizeof(stats);
    ASSERT_EQ(occlCommGetStats(rank.comm, &stats), occlSuccess);
    EXPECT_EQ(stats.operations, 3u);
    EXPECT_EQ(stats.bytesMoved, 3u * 400'000);
    EXPECT_EQ(stats.oneshotOperations + stats.directOperations + stats.stagedOperations, 3u);
    stats.structSize = 1;
    EXPECT_EQ(occlCommGetStats(rank.comm, &stats), occlInvalidArgument);
  });
}

TEST(PreMulSum, MultipliesEachRanksInput) {
  RunThreads(3, [](const Rank& rank) {
    for (size_t count : {1, 100, 3000, 50'000}) {
      DeviceBuffer values(count * 4);
      for (size_t i = 0; i < count; ++i) values.as<float>()[i] = float(i % 1000 + rank.rank);
      const float factor = 0.5f * (rank.rank + 1);
      occlRedOp_t op;
      ASSERT_EQ(occlRedOpCreatePreMulSum(&op, &factor, occlFloat32, rank.comm), occlSuccess);
      ASSERT_EQ(occlAllReduce(values.device(), values.device(), count, occlFloat32, op, rank.comm,
                              rank.stream, nullptr),
                occlSuccess)
          << occlGetLastError(nullptr);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
      for (size_t i = 0; i < count; ++i) {
        const float x = float(i % 1000);
        ASSERT_EQ(values.as<float>()[i], 0.5f * x + 1.0f * (x + 1) + 1.5f * (x + 2));
      }
      EXPECT_EQ(occlAllReduce(values.device(), values.device(), count, occlFloat64, op, rank.comm,
                              rank.stream, nullptr),
                occlInvalidArgument);
      ASSERT_EQ(occlRedOpDestroy(op, rank.comm), occlSuccess);
      EXPECT_EQ(occlRedOpDestroy(op, rank.comm), occlInvalidArgument);
    }
  });
}

TEST(Registration, IsOptionalAndChecked) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer values(1 << 20);
    void* handle = nullptr;
    ASSERT_EQ(occlCommRegister(rank.comm, values.device(), 1 << 20, &handle), occlSuccess)
        << occlGetLastError(nullptr);
    EXPECT_EQ(occlCommDeregister(rank.comm, handle), occlSuccess);
    EXPECT_EQ(occlCommDeregister(rank.comm, handle), occlInvalidArgument);
    EXPECT_EQ(occlCommRegister(rank.comm, &handle, 8, &handle), occlInvalidArgument);
  });
}

// Descriptors, mappings of memory files, threads.
struct Belongings {
  size_t descriptors, mappings, threads;
};
Belongings Count() {
  Belongings count = {};
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count.descriptors;
  }
  for ([[maybe_unused]] const auto& t : std::filesystem::directory_iterator("/proc/self/task")) {
    ++count.threads;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++count.mappings;
  }
  return count;
}

TEST(Communicators, LeaveNothingBehind) {
  const auto round = [](bool abort) {
    RunThreads(3, [&](const Rank& rank) {
      if (abort) {
        EXPECT_EQ(occlCommAbort(rank.comm, "on purpose"), occlSuccess);
      } else {
        ExpectWorks(rank.comm, rank.stream);
      }
    });
  };
  for (const bool abort : {true, false}) round(abort);  // the runtime keeps some for its life
  const Belongings before = Count();
  for (int i = 0; i < 30; ++i) round(i % 2 == 0);
  // A thread that has been joined may be in its folder for a moment longer, also before.
  const int64_t deadline_ms = NowMs() + 10'000;
  Belongings after = Count();
  while (after.threads > before.threads && NowMs() < deadline_ms) {
    usleep(1000);
    after = Count();
  }
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.mappings, before.mappings);
  EXPECT_LE(after.threads, before.threads);
}

TEST(UniqueId, BringsRanksTogether) {
  occlUniqueId id;
  ASSERT_EQ(occlGetUniqueId(&id), occlSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      occlComm_t comm = nullptr;
      ASSERT_EQ(occlCommInitRank(&comm, 3, id, r, nullptr), occlSuccess)
          << occlGetLastError(nullptr);
      orStream_t stream;
      ASSERT_EQ(orStreamCreate(&stream), orSuccess);
      ExpectWorks(comm, stream);
      ASSERT_EQ(orStreamDestroy(stream), orSuccess);
      ASSERT_EQ(occlCommDestroy(comm), occlSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  occlComm_t comm = nullptr;
  std::memset(&id, 0, sizeof(id));
  EXPECT_EQ(occlCommInitRank(&comm, 3, id, 0, nullptr), occlInvalidArgument);
}

}  // namespace
}  // namespace occl_conformance
