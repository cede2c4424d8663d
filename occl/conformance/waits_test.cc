// A rank that is missed in one communicator and waits in another: the error says where, so that who
// reads it sees both sides of a deadlock.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "occl/api/occl_debug.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr int64_t kPatience_ms = 30'000;
// Long enough for the other rank's wait to have lasted.
constexpr int64_t kDeadline_ms = 2'000;

void Await(const std::atomic<bool>& flag) {
  const int64_t end_ms = NowMs() + kPatience_ms;
  while (!flag.load() && NowMs() < end_ms) std::this_thread::yield();
  EXPECT_TRUE(flag.load());
}

occlComm_t Split(occlComm_t comm, const char* name) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = kPatience_ms;
  config.initTimeout_ms = kPatience_ms;
  config.name = name;
  occlComm_t made = nullptr;
  EXPECT_EQ(occlCommSplit(comm, 0, 0, &made, &config), occlSuccess) << occlGetLastError(nullptr);
  return made;
}

occlResult_t AllReduce(const DeviceBuffer& buffer, occlComm_t comm, orStream_t stream,
                       const occlCallOptions_t* options = nullptr) {
  return occlAllReduce(buffer.device(), buffer.device(), 1, occlInt32, occlSum, comm, stream,
                       options);
}

// What an all_reduce in `comm` says at its deadline, and, if `asked` is given, what it said to who
// asked shortly before.
std::string Timeout(occlComm_t comm, orStream_t stream, std::string* asked = nullptr) {
  DeviceBuffer buffer(4);
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  options.timeout_ms = kDeadline_ms;
  EXPECT_EQ(AllReduce(buffer, comm, stream, &options), occlSuccess);
  char text[1024] = "";
  for (int done = 0; asked != nullptr && done == 0;) {
    (void)occlRequestWait(request, 10);
    EXPECT_EQ(occlRequestTellWait(comm, request, text, sizeof text), occlSuccess);
    EXPECT_EQ(occlRequestTest(request, &done), occlSuccess);
    if (text[0] != '\0') *asked = text;
  }
  EXPECT_EQ(occlRequestWait(request, kPatience_ms), occlTimeout);
  if (asked != nullptr) {
    EXPECT_EQ(occlRequestTellWait(comm, request, text, sizeof text), occlSuccess);
    EXPECT_STREQ(text, "");  // it is complete
    EXPECT_EQ(occlRequestTellWait(comm, request, text, 0), occlInvalidArgument);
  }
  occlResult_t result = occlSuccess;
  const char* message = "";
  EXPECT_EQ(occlRequestGetResult(request, &result, &message), occlSuccess);
  const std::string said = message;
  EXPECT_EQ(occlRequestFree(request), occlSuccess);
  return said;
}

// First: the processes are forked from one that has used no device yet.
TEST(Waits, OfAProcessForEachRank) {
  constexpr int kSetupFailed = 1, kNotTold = 2, kWrongWaits = 3;
  RankProcesses ranks(2, [&](int rank, const occlUniqueId& id) -> int {
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.name = "world";
    occlComm_t world = nullptr;
    if (occlCommInitRank(&world, 2, id, rank, &config) != occlSuccess) return kSetupFailed;
    occlComm_t first = Split(world, "first"), second = Split(world, "second");
    orStream_t stream = nullptr;
    if (orStreamCreate(&stream) != orSuccess) return kSetupFailed;
    DeviceBuffer buffer(4);
    int64_t pid = 0;
    if (occlCommGetRankPid(world, 0, &pid) != occlSuccess) return kSetupFailed;
    if (rank == 0) {
      const std::string message = Timeout(first, stream);
      const std::string told = "while it waits in all_reduce #1 for rank(s) 0 (pid " +
                               std::to_string(pid) + ") in communicator second";
      std::fprintf(stderr, "%s\n", message.c_str());
      return message.find(told) != std::string::npos ? 0 : kNotTold;
    }
    char text[256];
    if (occlGetProcessWaits != nullptr &&
        (occlGetProcessWaits(pid, text, sizeof text) != occlSuccess || text[0] != '\0' ||
         occlGetProcessWaits(pid, text, 0) != occlInvalidArgument)) {
      return kWrongWaits;
    }
    if (AllReduce(buffer, second, stream) != occlSuccess) return kSetupFailed;
    if (AllReduce(buffer, first, stream) != occlSuccess) return kSetupFailed;
    return orStreamSynchronizeTimeout(stream, kPatience_ms) == orSuccess ? 0 : kSetupFailed;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// Rank 1 waits somewhere, perhaps in `other`; rank 0 misses it in the communicator "test" and is to
// say `told`.
using Wait = std::function<void(const Rank&, occlComm_t other, const DeviceBuffer&)>;
void ExpectTold(const Wait& wait, const std::string& told, const RankOptions& options = {}) {
  std::atomic<bool> begun{false}, over{false};
  const auto body = [&](const Rank& rank) {
    const DeviceBuffer buffer(400'000);
    occlComm_t other = Split(rank.comm, "other");
    if (rank.rank == 0) {
      Await(begun);
      std::string asked;
      const std::string message =
          Timeout(rank.comm, rank.stream, occlRequestTellWait == nullptr ? nullptr : &asked);
      for (const std::string& text : {message, asked.empty() ? message : asked}) {
        EXPECT_NE(text.find("waiting for rank(s) 1 (pid "), std::string::npos) << text;
        if (told.empty()) {
          EXPECT_EQ(text.find("it waits in"), std::string::npos) << text;
        } else {
          EXPECT_NE(text.find(told), std::string::npos) << text;
        }
      }
      over.store(true);
    } else {
      begun.store(true);
      wait(rank, other, buffer);
      Await(over);
    }
    EXPECT_EQ(occlCommDestroy(other), occlSuccess);
  };
  RunThreads(2, body, options);
}

std::string OwnRankZero() { return " for rank(s) 0 (pid " + std::to_string(getpid()) + ")"; }

// Both ranks use one stream, in another order.
void ReduceInOther(const Rank& rank, occlComm_t other, const DeviceBuffer& buffer) {
  ASSERT_EQ(AllReduce(buffer, other, rank.stream), occlSuccess);
  ASSERT_EQ(AllReduce(buffer, rank.comm, rank.stream), occlSuccess);
}

TEST(Waits, InAnotherCommunicatorsCollective) {
  ExpectTold(ReduceInOther,
             "last operation is all_reduce #1 (queued), while it waits in all_reduce #1" +
                 OwnRankZero() + " in communicator other");
}

TEST(Waits, AreNotAttributedToARankThatMayBeAnother) {
  RankOptions one_device;
  one_device.own_devices = false;
  ExpectTold(ReduceInOther, "", one_device);
}

TEST(Waits, InAnotherCommunicatorsMessages) {
  ExpectTold(
      [](const Rank& rank, occlComm_t other, const DeviceBuffer& buffer) {
        ASSERT_EQ(occlRecv(buffer.device(), 1, occlInt32, 0, 7, other, rank.stream, nullptr),
                  occlSuccess);
      },
      "waits in recv #1 with tag 7" + OwnRankZero() + " in communicator other");
  ExpectTold(
      [](const Rank& rank, occlComm_t other, const DeviceBuffer& buffer) {
        ASSERT_EQ(occlRecv(buffer.device(), 1, occlInt32, OCCL_ANY_SOURCE, 7, other, rank.stream,
                           nullptr),
                  occlSuccess);
      },
      "waits in recv #1 with tag 7 for any rank in communicator other");
  ExpectTold(
      [](const Rank& rank, occlComm_t other, const DeviceBuffer& buffer) {
        ASSERT_EQ(occlSend(buffer.device(), 100'000, occlInt32, 0, 3, other, rank.stream, nullptr),
                  occlSuccess);
      },
      "waits in send #1 with tag 3" + OwnRankZero() + " in communicator other");
}

TEST(Waits, InTheSameCommunicator) {
  RankOptions one_device;
  one_device.own_devices = false;
  ExpectTold(
      [](const Rank& rank, occlComm_t, const DeviceBuffer& buffer) {
        ASSERT_EQ(occlRecv(buffer.device(), 1, occlInt32, 0, 0, rank.comm, rank.stream, nullptr),
                  occlSuccess);
        ASSERT_EQ(AllReduce(buffer, rank.comm, rank.stream), occlSuccess);
      },
      "waits in recv #1 with tag 0" + OwnRankZero() + " in communicator test", one_device);
}

TEST(Waits, InASplit) {
  ExpectTold(
      [](const Rank&, occlComm_t other, const DeviceBuffer&) {
        occlConfig_t config = OCCL_CONFIG_INITIALIZER;
        config.initTimeout_ms = 2 * kDeadline_ms;
        occlComm_t made = nullptr;
        EXPECT_NE(occlCommSplit(other, 0, 0, &made, &config), occlSuccess);
      },
      "waits in split #1" + OwnRankZero() + " in communicator other");
}

TEST(Waits, InACommunicatorThatTheOtherHasNotJoined) {
  static MemoryStore* const memory = new MemoryStore;
  ExpectTold(
      [](const Rank&, occlComm_t, const DeviceBuffer&) {
        const occlStore_t store = memory->AsStore();
        occlConfig_t config = OCCL_CONFIG_INITIALIZER;
        config.early = 1;
        config.name = "third";
        occlComm_t third = nullptr;
        ASSERT_EQ(occlCommInitRankStore(&third, 2, 1, &store, &config), occlSuccess);
        // In slices, as a caller does who has other things to look at.
        const int64_t end_ms = NowMs() + 2 * kDeadline_ms;
        while (NowMs() < end_ms) EXPECT_EQ(occlCommAwaitRanks(third, &store, 50), occlTimeout);
        EXPECT_EQ(occlCommDestroy(third), occlSuccess);
      },
      "waits in the first use of communicator third for rank(s) 0");
}

// Who waits for all ranks is told where one waits that has joined and not come.
TEST(Waits, OfARankThatHasJoinedOnly) {
  RankOptions early;
  early.early = true;
  std::atomic<bool> begun{false}, over{false};
  const auto body = [&](const Rank& rank) {
    const DeviceBuffer buffer(4);
    if (rank.rank == 1) {
      ASSERT_EQ(occlRecv(buffer.device(), 1, occlInt32, 0, 9, rank.comm, rank.stream, nullptr),
                occlSuccess);
      begun.store(true);
      Await(over);
      return;
    }
    Await(begun);
    EXPECT_EQ(occlCommAwaitRanks(rank.comm, nullptr, kDeadline_ms), occlTimeout);
    const std::string message = occlGetLastError(nullptr);
    const std::string told = "; rank 1 waits in recv #1 with tag 9" + OwnRankZero();
    EXPECT_NE(message.find(told), std::string::npos) << message;
    over.store(true);
  };
  RunThreads(2, body, early);
}

// Nothing is told of a wait that is over, though its communicator lives on.
TEST(Waits, AreNotToldWhenTheyAreOver) {
  std::atomic<bool> begun{false}, over{false};
  RunThreads(2, [&](const Rank& rank) {
    DeviceBuffer buffer(4);
    occlComm_t other = Split(rank.comm, "other");
    if (rank.rank == 1) {
      begun.store(true);
      occlRequest_t request = nullptr;  // which keeps the operation
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      options.request = &request;
      ASSERT_EQ(AllReduce(buffer, other, rank.stream, &options), occlSuccess);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, kPatience_ms), orSuccess);
      begun.store(false);
      Await(over);
      EXPECT_EQ(occlRequestFree(request), occlSuccess);
    } else {
      Await(begun);
      usleep(300'000);
      ASSERT_EQ(AllReduce(buffer, other, rank.stream), occlSuccess);
      const int64_t end_ms = NowMs() + kPatience_ms;
      while (begun.load() && NowMs() < end_ms) std::this_thread::yield();
      const std::string message = Timeout(rank.comm, rank.stream);
      EXPECT_EQ(message.find("it waits in"), std::string::npos) << message;
      over.store(true);
    }
    EXPECT_EQ(occlCommDestroy(other), occlSuccess);
  });
}

}  // namespace
}  // namespace occl_conformance
