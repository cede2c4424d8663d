// Point to point: matching by peer and tag, wildcards, groups, several messages in flight.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

int32_t Value(int32_t seed, size_t index) {
  return static_cast<int32_t>(static_cast<uint32_t>(seed) * 1'000'003u +
                              static_cast<uint32_t>(index));
}

void Fill(const DeviceBuffer& buffer, size_t count, int32_t seed) {
  for (size_t i = 0; i < count; ++i) buffer.as<int32_t>()[i] = Value(seed, i);
}

void Expect(const DeviceBuffer& buffer, size_t count, int32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(buffer.as<int32_t>()[i], Value(seed, i)) << "element " << i;
  }
}

occlRequest_t Send(const Rank& rank, const DeviceBuffer& buffer, size_t count, int peer, int tag,
                   orStream_t stream) {
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  EXPECT_EQ(occlSend(buffer.device(), count, occlInt32, peer, tag, rank.comm, stream, &options),
            occlSuccess)
      << occlGetLastError(nullptr);
  return request;
}

occlRequest_t Recv(const Rank& rank, const DeviceBuffer& buffer, size_t count, int peer, int tag,
                   orStream_t stream) {
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  EXPECT_EQ(occlRecv(buffer.device(), count, occlInt32, peer, tag, rank.comm, stream, &options),
            occlSuccess)
      << occlGetLastError(nullptr);
  return request;
}

void WaitFree(occlRequest_t request) {
  ASSERT_EQ(occlRequestWait(request, 30'000), occlSuccess) << occlGetLastError(nullptr);
  ASSERT_EQ(occlRequestFree(request), occlSuccess);
}

TEST(Messages, ArriveInAllSizes) {
  RunThreads(2, [](const Rank& rank) {
    for (size_t count : {0, 1, 5, 6, 7, 100, 2048, 16384, 16385, 70'001}) {
      DeviceBuffer buffer(count * 4);
      const int seed = static_cast<int>(count) + 3;
      if (rank.rank == 0) {
        Fill(buffer, count, seed);
        WaitFree(Send(rank, buffer, count, 1, 7, rank.stream));
      } else {
        WaitFree(Recv(rank, buffer, count, 0, 7, rank.stream));
        Expect(buffer, count, seed);
      }
    }
  });
}

TEST(Messages, TagsAreMatchedWhateverTheirOrder) {
  RunThreads(2, [](const Rank& rank) {
    constexpr size_t kCount = 1000;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<orStream_t> streams(4);
    std::vector<occlRequest_t> requests;
    for (int i = 0; i < 4; ++i) {
      buffers.push_back(std::make_unique<DeviceBuffer>(kCount * 4));
      ASSERT_EQ(orStreamCreate(&streams[i]), orSuccess);
    }
    for (int i = 0; i < 4; ++i) {
      const int tag = rank.rank == 0 ? i : 3 - i;
      if (rank.rank == 0) {
        Fill(*buffers[i], kCount, tag);
        requests.push_back(Send(rank, *buffers[i], kCount, 1, tag, streams[i]));
      } else {
        requests.push_back(Recv(rank, *buffers[i], kCount, 0, tag, streams[i]));
      }
    }
    for (occlRequest_t request : requests) WaitFree(request);
    for (int i = 0; rank.rank == 1 && i < 4; ++i) Expect(*buffers[i], kCount, 3 - i);
    for (orStream_t stream : streams) ASSERT_EQ(orStreamDestroy(stream), orSuccess);
  });
}

TEST(Messages, OfOneTagKeepTheirOrderAcrossStreams) {
  RunThreads(2, [](const Rank& rank) {
    constexpr int kMessages = 8;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<orStream_t> streams(kMessages);
    std::vector<occlRequest_t> requests;
    for (int i = 0; i < kMessages; ++i) {
      buffers.push_back(std::make_unique<DeviceBuffer>(400));
      ASSERT_EQ(orStreamCreate(&streams[i]), orSuccess);
      if (rank.rank == 0) {
        Fill(*buffers[i], 100, i);
        requests.push_back(Send(rank, *buffers[i], 100, 1, 5, streams[i]));
      } else {
        requests.push_back(Recv(rank, *buffers[i], 100, 0, 5, streams[i]));
      }
    }
    for (occlRequest_t request : requests) WaitFree(request);
    for (int i = 0; rank.rank == 1 && i < kMessages; ++i) Expect(*buffers[i], 100, i);
    for (orStream_t stream : streams) ASSERT_EQ(orStreamDestroy(stream), orSuccess);
  });
}

TEST(Messages, AnySourceAndAnyTagTellTheSource) {
  RunThreads(4, [](const Rank& rank) {
    DeviceBuffer buffer(400);
    if (rank.rank != 0) {
      Fill(buffer, 100, rank.rank);
      WaitFree(Send(rank, buffer, 100, 0, 10 + rank.rank, rank.stream));
      return;
    }
    std::vector<int> seen(4, 0);
    for (int i = 0; i < 3; ++i) {
      occlRequest_t request = Recv(rank, buffer, 100, OCCL_ANY_SOURCE, OCCL_ANY_TAG, rank.stream);
      ASSERT_EQ(occlRequestWait(request, 30'000), occlSuccess) << occlGetLastError(nullptr);
      int source = -1;
      ASSERT_EQ(occlRequestGetSource(request, &source), occlSuccess);
      ASSERT_EQ(occlRequestFree(request), occlSuccess);
      ASSERT_GE(source, 1);
      Expect(buffer, 100, source);
      ++seen[source];
    }
    EXPECT_EQ(seen, (std::vector<int>{0, 1, 1, 1}));
  });
}

TEST(Messages, GroupsOfAnyOrderDoNotDeadlock) {
  RunThreads(4, [](const Rank& rank) {
    constexpr size_t kCount = 30'000;
    const int n = rank.nranks;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, recvs;
    for (int r = 0; r < n; ++r) {
      sends.push_back(std::make_unique<DeviceBuffer>(kCount * 4));
      recvs.push_back(std::make_unique<DeviceBuffer>(kCount * 4));
      Fill(*sends[r], kCount, rank.rank * n + r);
    }
    for (int round = 0; round < 5; ++round) {
      ASSERT_EQ(occlGroupStart(), occlSuccess);
      for (int r = 0; r < n; ++r) {  // to oneself, too; all sends before any receive on odd ranks
        const int peer = rank.rank % 2 == 0 ? r : n - 1 - r;
        ASSERT_EQ(occlSend(sends[peer]->device(), kCount, occlInt32, peer, 0, rank.comm,
                           rank.stream, nullptr),
                  occlSuccess);
        ASSERT_EQ(
            occlRecv(recvs[r]->device(), kCount, occlInt32, r, 0, rank.comm, rank.stream, nullptr),
            occlSuccess);
      }
      ASSERT_EQ(occlGroupEnd(), occlSuccess) << occlGetLastError(nullptr);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
      for (int r = 0; r < n; ++r) {
        Expect(*recvs[r], kCount, r * n + rank.rank);
        std::memset(recvs[r]->host(), 0, kCount * 4);
      }
    }
  });
}

TEST(Messages, MatchedPairOfAGroupCompletesThoughAnotherIsUnmatched) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer a(400), b(400);
    Fill(a, 100, rank.rank);
    occlRequest_t first = nullptr, second = nullptr;
    if (rank.rank == 0) {
      ASSERT_EQ(occlGroupStart(), occlSuccess);
      first = Recv(rank, b, 100, 1, 1, rank.stream);
      second = Send(rank, a, 100, 1, 2, rank.stream);
      ASSERT_EQ(occlGroupEnd(), occlSuccess);
      WaitFree(second);
      int done = 1;
      ASSERT_EQ(occlRequestTest(first, &done), occlSuccess);
      EXPECT_EQ(done, 0);
      DeviceBuffer token(4);
      WaitFree(Send(rank, token, 1, 1, 3, nullptr));  // default stream: the other one is busy
      WaitFree(first);
    } else {
      WaitFree(Recv(rank, b, 100, 0, 2, rank.stream));
      DeviceBuffer token(4);
      WaitFree(Recv(rank, token, 1, 0, 3, rank.stream));
      WaitFree(Send(rank, a, 100, 0, 1, rank.stream));
    }
    Expect(b, 100, 1 - rank.rank);
  });
}

// Whichever end's deadline passes first says which tags there are on both.
TEST(Messages, OfAnotherTagAreNamedAtTheDeadline) {
  struct Case {
    int impatient;  // rank
    int pair;
    std::vector<std::string> named;
  };
  for (const Case& one :
       {Case{0, 0, {"tag 41", "tag 51", "tag 52"}}, Case{1, 0, {"tag 51", "tag 41", "tag 42"}},
        Case{1, 1, {"from any rank", "tag 52", "tag 41", "tag 42"}}}) {
    std::atomic<bool> other_is_there{false};
    RunThreads(2, [&](const Rank& rank) {
      const bool impatient = rank.rank == one.impatient;
      const int64_t end_ms = NowMs() + 30'000;
      while (impatient && !other_is_there.load() && NowMs() < end_ms) std::this_thread::yield();
      DeviceBuffer buffer(4);
      occlRequest_t requests[2] = {};
      orStream_t streams[2] = {};
      for (const int i : {0, 1}) {
        ASSERT_EQ(orStreamCreate(&streams[i]), orSuccess);
        occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
        options.timeout_ms = impatient && i == one.pair ? 100 : 20'000;
        options.request = &requests[i];
        const occlResult_t issued =
            rank.rank == 0 ? occlSend(buffer.device(), 1, occlInt32, 1, 41 + i, rank.comm,
                                      streams[i], &options)
                           : occlRecv(buffer.device(), 1, occlInt32, i == 0 ? 0 : OCCL_ANY_SOURCE,
                                      51 + i, rank.comm, streams[i], &options);
        ASSERT_EQ(issued, occlSuccess);
      }
      other_is_there.store(true);
      for (const int i : {0, 1}) {
        EXPECT_EQ(occlRequestWait(requests[i], 30'000), occlTimeout);
        occlResult_t result = occlSuccess;
        const char* message = "";
        ASSERT_EQ(occlRequestGetResult(requests[i], &result, &message), occlSuccess);
        for (const std::string& named : one.named) {
          EXPECT_NE(std::string(message).find(named), std::string::npos)
              << named << ": " << message;
        }
        ASSERT_EQ(occlRequestFree(requests[i]), occlSuccess);
        ASSERT_EQ(orStreamDestroy(streams[i]), orSuccess);
      }
    });
  }
}

TEST(Messages, DoNotQueueBehindCollectives) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer sum(4), message(400);
    *sum.as<int32_t>() = 1;
    orStream_t other;
    ASSERT_EQ(orStreamCreate(&other), orSuccess);
    if (rank.rank == 0) {  // begins a collective that the peer joins only after the message
      ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                              rank.stream, nullptr),
                occlSuccess);
      Fill(message, 100, 9);
      WaitFree(Send(rank, message, 100, 1, 0, other));
    } else {
      WaitFree(Recv(rank, message, 100, 0, 0, other));
      Expect(message, 100, 9);
      ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                              rank.stream, nullptr),
                occlSuccess);
    }
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    EXPECT_EQ(*sum.as<int32_t>(), 2);
    ASSERT_EQ(orStreamDestroy(other), orSuccess);
  });
}

TEST(Messages, HundredsInFlightArriveInOrder) {
  RunThreads(2, [](const Rank& rank) {
    constexpr int kMessages = 300;  // more than the places of a pair
    DeviceBuffer buffer(kMessages * 4);
    for (int i = 0; rank.rank == 0 && i < kMessages; ++i) buffer.as<int32_t>()[i] = i;
    ASSERT_EQ(occlGroupStart(), occlSuccess);
    for (int i = 0; i < kMessages; ++i) {
      void* at = buffer.device_bytes() + i * 4;
      if (rank.rank == 0) {
        ASSERT_EQ(occlSend(at, 1, occlInt32, 1, 0, rank.comm, rank.stream, nullptr), occlSuccess);
      } else {
        ASSERT_EQ(occlRecv(at, 1, occlInt32, 0, 0, rank.comm, rank.stream, nullptr), occlSuccess);
      }
    }
    ASSERT_EQ(occlGroupEnd(), occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(buffer.as<int32_t>()[i], i);
  });
}

// More than the segment has places for: a place that a receiver has freed is used again at once.
TEST(Messages, HundredsInAGroupBothWaysArriveInOrder) {
  constexpr int kMessages = 300, kRounds = 10;
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer sent(4 * kMessages), received(4 * kMessages);
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kMessages; ++i) {
        sent.as<int32_t>()[i] = Value(rank.rank + round, i);
        received.as<int32_t>()[i] = -1;
      }
      occlRequest_t last = nullptr;
      occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
      ASSERT_EQ(occlGroupStart(), occlSuccess);
      for (int i = 0; i < kMessages; ++i) {
        options.request = i + 1 == kMessages ? &last : nullptr;
        ASSERT_EQ(occlRecv(received.device_bytes() + 4 * i, 1, occlInt32, 1 - rank.rank, 0,
                           rank.comm, rank.stream, &options),
                  occlSuccess);
        options.request = nullptr;
        ASSERT_EQ(occlSend(sent.device_bytes() + 4 * i, 1, occlInt32, 1 - rank.rank, 0, rank.comm,
                           rank.stream, &options),
                  occlSuccess);
      }
      ASSERT_EQ(occlGroupEnd(), occlSuccess);
      WaitFree(last);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_EQ(received.as<int32_t>()[i], Value(1 - rank.rank + round, i)) << round << " " << i;
      }
    }
  });
}

TEST(Groups, CollectivesAndMessagesMix) {
  RunThreads(3, [](const Rank& rank) {
    const int n = rank.nranks;
    DeviceBuffer a(4), b(4), in(4), out(4);
    *a.as<int32_t>() = rank.rank + 1;
    *b.as<int32_t>() = 10 * rank.rank;
    *out.as<int32_t>() = rank.rank;
    ASSERT_EQ(occlGroupStart(), occlSuccess);
    ASSERT_EQ(occlAllReduce(a.device(), a.device(), 1, occlInt32, occlSum, rank.comm, rank.stream,
                            nullptr),
              occlSuccess);
    ASSERT_EQ(occlRecv(in.device(), 1, occlInt32, (rank.rank + n - 1) % n, 0, rank.comm,
                       rank.stream, nullptr),
              occlSuccess);
    ASSERT_EQ(occlAllReduce(b.device(), b.device(), 1, occlInt32, occlMax, rank.comm, rank.stream,
                            nullptr),
              occlSuccess);
    ASSERT_EQ(occlSend(out.device(), 1, occlInt32, (rank.rank + 1) % n, 0, rank.comm, rank.stream,
                       nullptr),
              occlSuccess);
    ASSERT_EQ(occlGroupEnd(), occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    EXPECT_EQ(*a.as<int32_t>(), 6);
    EXPECT_EQ(*b.as<int32_t>(), 20);
    EXPECT_EQ(*in.as<int32_t>(), (rank.rank + n - 1) % n);
  });
}

TEST(Groups, AnArgumentErrorSpoilsTheWholeGroup) {
  RunThreads(2, [](const Rank& rank) {
    DeviceBuffer sum(4);
    *sum.as<int32_t>() = 1;
    ASSERT_EQ(occlGroupStart(), occlSuccess);
    EXPECT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                            rank.stream, nullptr),
              occlSuccess);
    EXPECT_EQ(occlSend(sum.device(), 1, occlInt32, 99, 0, rank.comm, rank.stream, nullptr),
              occlInvalidArgument);
    EXPECT_EQ(occlGroupEnd(), occlInvalidArgument);
    EXPECT_EQ(occlGroupEnd(), occlInvalidUsage);
    ASSERT_EQ(occlAllReduce(sum.device(), sum.device(), 1, occlInt32, occlSum, rank.comm,
                            rank.stream, nullptr),
              occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    EXPECT_EQ(*sum.as<int32_t>(), 2);
  });
}

}  // namespace
}  // namespace occl_conformance
