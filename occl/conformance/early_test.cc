// Ranks that join without waiting for each other: sends and receives need their two ranks only.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr RankOptions kEarly = {.timeout_ms = 20'000, .own_devices = true, .early = true};

void Send(const Rank& rank, int peer, size_t count, int32_t first) {
  DeviceBuffer data(count * 4);
  for (size_t i = 0; i < count; ++i) data.as<int32_t>()[i] = first + static_cast<int32_t>(i);
  ASSERT_EQ(occlSend(data.device(), count, occlInt32, peer, 0, rank.comm, rank.stream, nullptr),
            occlSuccess)
      << occlGetLastError(nullptr);
  ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
  EXPECT_STREQ(occlGetLastError(rank.comm), "");
}

void ExpectReceived(const Rank& rank, int peer, size_t count, int32_t first) {
  DeviceBuffer data(count * 4);
  ASSERT_EQ(occlRecv(data.device(), count, occlInt32, peer, 0, rank.comm, rank.stream, nullptr),
            occlSuccess)
      << occlGetLastError(nullptr);
  ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
  EXPECT_STREQ(occlGetLastError(rank.comm), "");
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(data.as<int32_t>()[i], first + static_cast<int32_t>(i)) << i;
  }
}

constexpr size_t kMessageInts = 10'000;
occlResult_t SendTo(void* data, int peer, occlComm_t comm, orStream_t stream,
                    const occlCallOptions_t* options) {
  return occlSend(data, kMessageInts, occlInt32, peer, 0, comm, stream, options);
}
occlResult_t ReceiveFrom(void* data, int peer, occlComm_t comm, orStream_t stream,
                         const occlCallOptions_t* options) {
  return occlRecv(data, kMessageInts, occlInt32, peer, 0, comm, stream, options);
}

// A rank of a communicator that the test makes by itself, in a thread of its own.
class Joined {
 public:
  Joined(MemoryStore* memory, int nranks, int rank, int64_t init_timeout_ms = 60'000) {
    const occlStore_t store = memory->AsStore();
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.timeout_ms = 20'000;
    config.initTimeout_ms = init_timeout_ms;
    config.name = "test";
    config.early = 1;
    rank_ = {rank, nranks, nullptr, nullptr};
    EXPECT_EQ(orStreamCreate(&rank_.stream), orSuccess);
    EXPECT_EQ(occlCommInitRankStore(&rank_.comm, nranks, rank, &store, &config), occlSuccess)
        << occlGetLastError(nullptr);
  }
  ~Joined() {
    EXPECT_EQ(occlCommDestroy(rank_.comm), occlSuccess);
    EXPECT_EQ(orStreamDestroy(rank_.stream), orSuccess);
  }
  const Rank& rank() const { return rank_; }

 private:
  Rank rank_;
};

TEST(Early, TwoRanksTalkBeforeTheOthersCome) {
  for (const size_t count : {size_t{1}, size_t{100'000}}) {
    MemoryStore memory;
    Joined two(&memory, 4, 2);
    std::thread receiver([&] {
      Joined three(&memory, 4, 3);
      ExpectReceived(three.rank(), 2, count, 7);
    });
    Send(two.rank(), 3, count, 7);
    receiver.join();
  }
}

TEST(Early, LateRanksComeAfterTheFirstHasGone) {
  MemoryStore memory;
  std::thread early([&] {
    Joined zero(&memory, 4, 0);
    std::thread peer([&] {
      Joined one(&memory, 4, 1);
      ExpectReceived(one.rank(), 0, 5000, 1);
    });
    Send(zero.rank(), 1, 5000, 1);
    peer.join();
  });
  early.join();  // both have destroyed their communicators, and one of them kept the segment
  std::thread peer([&] {
    Joined three(&memory, 4, 3);
    ExpectReceived(three.rank(), OCCL_ANY_SOURCE, 5000, 2);
  });
  Joined two(&memory, 4, 2);
  Send(two.rank(), 3, 5000, 2);
  peer.join();
}

TEST(Early, ASendIsIssuedBeforeItsReceiverComes) {
  MemoryStore memory;
  Joined zero(&memory, 2, 0);
  DeviceBuffer data(4000 * 4);
  for (int i = 0; i < 4000; ++i) data.as<int32_t>()[i] = i;
  ASSERT_EQ(
      occlSend(data.device(), 4000, occlInt32, 1, 0, zero.rank().comm, zero.rank().stream, nullptr),
      occlSuccess);
  EXPECT_EQ(orStreamQuery(zero.rank().stream), orErrorNotReady);
  std::thread peer([&] {
    Joined one(&memory, 2, 1);
    ExpectReceived(one.rank(), 0, 4000, 0);
  });
  peer.join();
  EXPECT_EQ(orStreamSynchronizeTimeout(zero.rank().stream, 30'000), orSuccess);
}

TEST(Early, CollectivesAndMessagesMixOnceAllHaveCome) {
  RunThreads(
      3,
      [](const Rank& rank) {
        const int next = (rank.rank + 1) % 3, previous = (rank.rank + 2) % 3;
        DeviceBuffer sum(4), in(40'000), out(40'000);
        *sum.as<int32_t>() = rank.rank + 1;
        for (int i = 0; i < 10'000; ++i) in.as<int32_t>()[i] = rank.rank * 100'000 + i;
        ASSERT_EQ(occlGroupStart(), occlSuccess);
        ASSERT_EQ(
            occlSend(in.device(), 10'000, occlInt32, next, 0, rank.comm, rank.stream, nullptr),
            occlSuccess);
        ASSERT_EQ(
            occlRecv(out.device(), 10'000, occlInt32, previous, 0, rank.comm, rank.stream, nullptr),
            occlSuccess);
        ASSERT_EQ(occlGroupEnd(), occlSuccess);
        ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                                rank.stream, nullptr),
                  occlSuccess)
            << occlGetLastError(nullptr);
        ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
        EXPECT_EQ(*sum.as<int32_t>(), 6);
        for (int i = 0; i < 10'000; ++i) {
          ASSERT_EQ(out.as<int32_t>()[i], previous * 100'000 + i);
        }
        occlComm_t half = nullptr;
        ASSERT_EQ(occlCommSplit(rank.comm, rank.rank == 0 ? 0 : 1, rank.rank, &half, nullptr),
                  occlSuccess)
            << occlGetLastError(nullptr);
        EXPECT_EQ(occlCommDestroy(half), occlSuccess);
      },
      kEarly);
}

TEST(Early, NamesTheRanksThatDoNotCome) {
  MemoryStore memory;
  Joined zero(&memory, 3, 0, 300);
  std::promise<void> over;
  std::thread peer([&] {
    Joined two(&memory, 3, 2);
    over.get_future().wait();
  });
  const int64_t end_ms = NowMs() + 20'000;
  while (occlCommAwaitRanks(zero.rank().comm, nullptr, 50) == occlTimeout &&
         std::strstr(occlGetLastError(nullptr), "rank(s) 1 did not come") == nullptr &&
         NowMs() < end_ms) {
  }
  DeviceBuffer data(4);
  EXPECT_EQ(occlAllReduce(data.device(), data.device(), 1, occlInt32, occlSum, zero.rank().comm,
                          zero.rank().stream, nullptr),
            occlTimeout);
  EXPECT_NE(std::strstr(occlGetLastError(nullptr), "rank(s) 1 did not come"), nullptr)
      << occlGetLastError(nullptr);
  occlResult_t error = occlInternalError;
  EXPECT_EQ(occlCommGetAsyncError(zero.rank().comm, &error), occlSuccess);
  EXPECT_EQ(error, occlSuccess);
  over.set_value();
  peer.join();
}

TEST(Early, RefusesASecondProcessOfARank) {
  MemoryStore memory;
  Joined zero(&memory, 3, 0);
  Joined one(&memory, 3, 1);
  const occlStore_t store = memory.AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.name = "test";
  config.early = 1;
  occlComm_t comm = nullptr;
  EXPECT_EQ(occlCommInitRankStore(&comm, 3, 1, &store, &config), occlMismatch);
  EXPECT_NE(std::strstr(occlGetLastError(nullptr), "says it is rank 1"), nullptr)
      << occlGetLastError(nullptr);
  EXPECT_EQ(occlCommInitRankStore(&comm, 4, 2, &store, &config), occlMismatch);
  EXPECT_NE(std::strstr(occlGetLastError(nullptr), "nranks"), nullptr) << occlGetLastError(nullptr);
  occlStore_t without = store;
  without.add = nullptr;
  EXPECT_EQ(occlCommInitRankStore(&comm, 3, 2, &without, &config), occlInvalidArgument);
}

TEST(Early, TellsTheOthersWhoDisagrees) {
  MemoryStore memory;
  Joined zero(&memory, 3, 0);
  const occlStore_t store = memory.AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.name = "test";
  config.early = 1;
  occlComm_t comm = nullptr;
  EXPECT_EQ(occlCommInitRankStore(&comm, 4, 2, &store, &config), occlMismatch);
  EXPECT_EQ(occlCommAwaitRanks(zero.rank().comm, &store, 30'000), occlMismatch);
  const std::string told = occlGetLastError(nullptr);
  EXPECT_NE(told.find("rank 2 (pid "), std::string::npos) << told;
  EXPECT_NE(told.find("nranks = 4"), std::string::npos) << told;
}

// A process of its own that does nothing until it is killed.
class Bystander {
 public:
  Bystander() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  }
  ~Bystander() {
    if (pid_ > 0) Kill();
    close(pidfd_);
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }

 private:
  pid_t pid_;
  int pidfd_;
};

TEST(Early, MessagesFailWhenTheExpectedProcessOfARankEnds) {
  for (const bool dead_before : {false, true}) {
    for (const bool sends : {false, true}) {
      Bystander process;
      const std::string name = "rank 1 (pid " + std::to_string(process.pid()) + ") has died";
      MemoryStore memory;
      Joined zero(&memory, 3, 0);
      occlComm_t const comm = zero.rank().comm;
      if (dead_before) {
        ASSERT_EQ(occlCommExpectRank(comm, 1, process.pid(), -1), occlSuccess);
      } else {
        ASSERT_EQ(occlCommExpectRank(comm, 1, process.pid(), process.pidfd()), occlSuccess);
      }
      DeviceBuffer data(40'000);
      occlRequest_t request = nullptr;
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      options.request = &request;
      const auto call = sends ? &SendTo : &ReceiveFrom;
      ASSERT_EQ(call(data.device(), 1, comm, zero.rank().stream, &options), occlSuccess);
      if (!dead_before) process.Kill();
      EXPECT_EQ(occlRequestWait(request, 15'000), occlRemoteError);
      EXPECT_NE(std::strstr(occlGetLastError(comm), name.c_str()), nullptr)
          << occlGetLastError(comm);
      occlRequestFree(request);
    }
  }
}

// Aborts, on `rank` that has not joined, what Joined makes.
occlResult_t AbortUnjoined(MemoryStore* memory, int nranks, int rank) {
  const occlStore_t store = memory->AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.name = "test";
  config.early = 1;
  return occlCommAbortInit(nranks, rank, &store, &config, "no more of it");
}

std::string AbortedBy(int rank) {
  return "aborted by rank " + std::to_string(rank) + " (pid " + std::to_string(getpid()) +
         ") before all ranks had joined: no more of it";
}

TEST(Early, AnAbortOfARankThatHasNotJoinedReleasesAllThatWait) {
  MemoryStore memory;
  Joined zero(&memory, 4, 0);
  Joined one(&memory, 4, 1);
  // Rank 0 waits for a message of rank 1, which is there; rank 1 for all ranks.
  DeviceBuffer data(40'000);
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  ASSERT_EQ(ReceiveFrom(data.device(), 1, zero.rank().comm, zero.rank().stream, &options),
            occlSuccess);
  std::thread waiting([&] {
    EXPECT_EQ(occlCommAwaitRanks(one.rank().comm, nullptr, 15'000), occlAborted);
    EXPECT_NE(std::strstr(occlGetLastError(nullptr), AbortedBy(3).c_str()), nullptr)
        << occlGetLastError(nullptr);
  });
  ASSERT_EQ(AbortUnjoined(&memory, 4, 3), occlSuccess) << occlGetLastError(nullptr);
  EXPECT_EQ(occlRequestWait(request, 15'000), occlAborted);
  EXPECT_NE(std::strstr(occlGetLastError(zero.rank().comm), AbortedBy(3).c_str()), nullptr)
      << occlGetLastError(zero.rank().comm);
  occlRequestFree(request);
  waiting.join();
}

TEST(Early, AnAbortIsToldToRanksThatComeLater) {
  MemoryStore memory;
  ASSERT_EQ(AbortUnjoined(&memory, 3, 2), occlSuccess) << occlGetLastError(nullptr);
  const occlStore_t store = memory.AsStore();
  for (const int early : {1, 0}) {
    for (const int rank : {0, 1}) {
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.name = "test";
      config.early = early;
      config.initTimeout_ms = 15'000;
      occlComm_t comm = nullptr;
      EXPECT_EQ(occlCommInitRankStore(&comm, 3, rank, &store, &config), occlAborted);
      EXPECT_NE(std::strstr(occlGetLastError(nullptr), AbortedBy(2).c_str()), nullptr)
          << occlGetLastError(nullptr);
    }
  }
}

TEST(Early, AnAbortReachesARankThatWaitsForTheFirst) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  int64_t number = 0;  // the first has come and is not there yet
  ASSERT_EQ(store.add(store.context, "occl/test/come", 1, &number), occlSuccess);
  std::thread waiting([&] {
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.name = "test";
    config.early = 1;
    config.initTimeout_ms = 15'000;
    occlComm_t comm = nullptr;
    EXPECT_EQ(occlCommInitRankStore(&comm, 3, 1, &store, &config), occlAborted);
    EXPECT_NE(std::strstr(occlGetLastError(nullptr), AbortedBy(2).c_str()), nullptr)
        << occlGetLastError(nullptr);
  });
  ASSERT_EQ(AbortUnjoined(&memory, 3, 2), occlSuccess) << occlGetLastError(nullptr);
  waiting.join();
}

// What Joined makes is left by `rank`, which has not joined.
occlResult_t LeaveUnjoined(MemoryStore* memory, int nranks, int rank) {
  const occlStore_t store = memory->AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.name = "test";
  config.early = 1;
  return occlCommLeaveInit(nranks, rank, &store, &config, 0);
}

TEST(Early, WhoLeavesWithoutHavingJoinedEndsOnlyWhatNeedsIt) {
  const std::string left =
      "rank 2 (pid " + std::to_string(getpid()) + ") destroyed the group before it came";
  for (const bool leaves_first : {true, false}) {
    for (const bool sends : {true, false}) {
      MemoryStore memory;
      if (leaves_first) {
        ASSERT_EQ(LeaveUnjoined(&memory, 3, 2), occlSuccess);
      }
      Joined zero(&memory, 3, 0);
      Joined one(&memory, 3, 1);
      DeviceBuffer data(40'000);
      orStream_t stream = nullptr;
      ASSERT_EQ(orStreamCreate(&stream), orSuccess);
      occlRequest_t request = nullptr;
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      options.request = &request;
      const auto needs_it = [&] {
        const auto call = sends ? &SendTo : &ReceiveFrom;
        ASSERT_EQ(call(data.device(), 2, zero.rank().comm, stream, &options), occlSuccess);
      };
      if (!leaves_first) {
        needs_it();
        ASSERT_EQ(LeaveUnjoined(&memory, 3, 2), occlSuccess);
      } else {
        std::thread peer([&] { ExpectReceived(one.rank(), 0, 5000, 1); });
        Send(zero.rank(), 1, 5000, 1);
        peer.join();
        needs_it();
      }
      EXPECT_EQ(occlRequestWait(request, 15'000), occlRemoteError);
      EXPECT_NE(std::strstr(occlGetLastError(zero.rank().comm), left.c_str()), nullptr)
          << occlGetLastError(zero.rank().comm);
      occlRequestFree(request);
      EXPECT_EQ(orStreamDestroy(stream), orSuccess);
    }
  }
}

TEST(Early, WhoWaitsForAllFindsInTheStoreThatARankHasLeft) {
  MemoryStore memory;
  Joined zero(&memory, 2, 0);
  const occlStore_t store = memory.AsStore();
  // As of a rank that could not reach the keeper.
  const int64_t record[4] = {4711, 0, 0, 0};
  int64_t number = 0;
  ASSERT_EQ(store.set(store.context, "occl/test/left/1", record, sizeof(record)), occlSuccess);
  ASSERT_EQ(store.add(store.context, "occl/test/come", int64_t{1} << 32, &number), occlSuccess);
  EXPECT_EQ(occlCommAwaitRanks(zero.rank().comm, &store, 15'000), occlRemoteError);
  EXPECT_NE(std::strstr(occlGetLastError(nullptr), "rank 1 (pid 4711) destroyed the group"),
            nullptr)
      << occlGetLastError(nullptr);
}

TEST(Early, AnAbortOfARankThatHasNotJoinedChecksItsArguments) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  EXPECT_EQ(occlCommLeaveInit(2, 2, &store, nullptr, 0), occlInvalidArgument);
  EXPECT_EQ(occlCommLeaveInit(2, 0, nullptr, nullptr, 1), occlInvalidArgument);
  EXPECT_EQ(occlCommAbortInit(2, 2, &store, nullptr, nullptr), occlInvalidArgument);
  EXPECT_EQ(occlCommAbortInit(2, 0, nullptr, nullptr, nullptr), occlInvalidArgument);
}

TEST(Early, AnExpectedProcessThatIsNotTheOneThatComesIsForgotten) {
  MemoryStore memory;
  Joined zero(&memory, 2, 0);
  ASSERT_EQ(occlCommExpectRank(zero.rank().comm, 1, 1, -1), occlSuccess);
  EXPECT_EQ(occlCommExpectRank(zero.rank().comm, 2, 1, -1), occlInvalidArgument);
  EXPECT_EQ(occlCommExpectRank(zero.rank().comm, 1, 0, -1), occlInvalidArgument);
  std::thread peer([&] {
    Joined one(&memory, 2, 1);
    Send(one.rank(), 0, 300, 5);
  });
  ExpectReceived(zero.rank(), 1, 300, 5);
  peer.join();
  ASSERT_EQ(occlCommExpectRank(zero.rank().comm, 1, 1, -1), occlSuccess);  // it has come: no effect
  int dead[2] = {0, 0};
  ASSERT_EQ(occlCommGetDeadRanks(zero.rank().comm, dead), occlSuccess);
  EXPECT_EQ(dead[1], 0);
}

TEST(Early, AShrinkLeavesOutARankThatNeverCame) {
  MemoryStore memory;
  Joined zero(&memory, 3, 0);
  Joined one(&memory, 3, 1);
  const auto go_on = [](const Rank& rank) {
    const int never_came = 2;
    occlComm_t smaller = nullptr;
    ASSERT_EQ(occlCommShrink(rank.comm, &never_came, 1, &smaller, nullptr, OCCL_SHRINK_ABORT),
              occlSuccess)
        << occlGetLastError(nullptr);
    DeviceBuffer data(4);
    data.as<int32_t>()[0] = 5 + rank.rank;
    EXPECT_EQ(occlAllReduce(data.device(), data.device(), 1, occlInt32, occlSum, smaller,
                            rank.stream, nullptr),
              occlSuccess);
    EXPECT_EQ(orStreamSynchronizeTimeout(rank.stream, 20'000), orSuccess);
    EXPECT_EQ(data.as<int32_t>()[0], 11);
    EXPECT_EQ(occlCommDestroy(smaller), occlSuccess);
  };
  std::thread other([&] { go_on(one.rank()); });
  go_on(zero.rank());
  other.join();
}

}  // namespace
}  // namespace occl_conformance
