// Values of every collective against sequential oracles: element values differ by rank and index.
#include <atomic>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

// Counts around the borders: nothing, fewer elements than ranks, primes, the sizes at which the way
// of the data changes (24 bytes, 8 KB, 64 KB) and their neighbours, several blocks.
#ifdef __SANITIZE_THREAD__  // 20 times slower
const std::vector<size_t> kCounts = {0, 1, 2, 3, 5, 6, 7, 17, 255, 2047, 2048, 2049, 16385};
#else
const std::vector<size_t> kCounts = {0,     1,     2,     3,     5,     6,      7,
                                     17,    255,   1021,  2047,  2048,  2049,   4099,
                                     16383, 16384, 16385, 65536, 65537, 200'003};
#endif

int32_t Value(int rank, size_t index) {
  return static_cast<int32_t>(rank * 1'000'003u + index * 7919u + (index >> 7));
}

void Fill(const DeviceBuffer& buffer, int rank, size_t count) {
  for (size_t i = 0; i < count; ++i) buffer.as<int32_t>()[i] = Value(rank, i);
}

int32_t Sum(int nranks, size_t index) {
  uint32_t sum = 0;
  for (int r = 0; r < nranks; ++r) sum += static_cast<uint32_t>(Value(r, index));
  return static_cast<int32_t>(sum);
}

void Sync(const Rank& rank) {
  ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
  occlResult_t error = occlSuccess;
  ASSERT_EQ(occlCommGetAsyncError(rank.comm, &error), occlSuccess);
  ASSERT_EQ(error, occlSuccess) << occlGetLastError(rank.comm);
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  int nranks() const { return GetParam(); }
  // Runs body for every count, in place and out of place.
  void Sweep(const std::function<void(const Rank&, size_t count, bool in_place)>& body) {
    RunThreads(nranks(), [&](const Rank& rank) {
      for (size_t count : kCounts) {
        for (bool in_place : {false, true}) {
          body(rank, count, in_place);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    });
  }
};

TEST_P(Collectives, AllReduceSums) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    DeviceBuffer send(count * 4), recv(count * 4);
    const DeviceBuffer& result = in_place ? send : recv;
    Fill(send, rank.rank, count);
    ASSERT_EQ(occlAllReduce(send.device(), result.device(), count, occlInt32, occlSum, rank.comm,
                            rank.stream, nullptr),
              occlSuccess)
        << occlGetLastError(nullptr);
    Sync(rank);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(result.as<int32_t>()[i], Sum(rank.nranks, i)) << "count " << count << " at " << i;
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheRoots) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    for (int root = 0; root < rank.nranks; ++root) {
      DeviceBuffer send(count * 4), recv(count * 4);
      const DeviceBuffer& result = in_place ? send : recv;
      Fill(send, rank.rank, count);
      ASSERT_EQ(occlBroadcast(send.device(), result.device(), count, occlInt32, root, rank.comm,
                              rank.stream, nullptr),
                occlSuccess);
      Sync(rank);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(result.as<int32_t>()[i], Value(root, i));
    }
  });
}

TEST_P(Collectives, ReduceSumsOnTheRootOnly) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    const int root = static_cast<int>(count % rank.nranks);
    DeviceBuffer send(count * 4), recv(count * 4);
    const DeviceBuffer& result = in_place ? send : recv;
    Fill(send, rank.rank, count);
    if (!in_place) std::memset(recv.host(), 0x55, count * 4);
    ASSERT_EQ(occlReduce(send.device(), result.device(), count, occlInt32, occlSum, root, rank.comm,
                         rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    for (size_t i = 0; i < count; ++i) {
      const int32_t untouched = in_place ? Value(rank.rank, i) : 0x55555555;
      ASSERT_EQ(result.as<int32_t>()[i], rank.rank == root ? Sum(rank.nranks, i) : untouched);
    }
  });
}

TEST_P(Collectives, AllGatherPutsBlocksInRankOrder) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    DeviceBuffer send(count * 4), recv(rank.nranks * count * 4);
    unsigned char* from =
        in_place ? recv.device_bytes() + rank.rank * count * 4 : send.device_bytes();
    int32_t* host = in_place ? recv.as<int32_t>() + rank.rank * count : send.as<int32_t>();
    for (size_t i = 0; i < count; ++i) host[i] = Value(rank.rank, i);
    ASSERT_EQ(occlAllGather(from, recv.device(), count, occlInt32, rank.comm, rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    for (int r = 0; r < rank.nranks; ++r) {
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(recv.as<int32_t>()[r * count + i], Value(r, i));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterSumsTheOwnBlock) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    DeviceBuffer send(rank.nranks * count * 4), recv(count * 4);
    const size_t own = rank.rank * count;
    unsigned char* to = in_place ? send.device_bytes() + own * 4 : recv.device_bytes();
    const int32_t* host = in_place ? send.as<int32_t>() + own : recv.as<int32_t>();
    Fill(send, rank.rank, rank.nranks * count);
    ASSERT_EQ(occlReduceScatter(send.device(), to, count, occlInt32, occlSum, rank.comm,
                                rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(host[i], Sum(rank.nranks, own + i));
  });
}

TEST_P(Collectives, GatherAndScatterMoveBlocks) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    const int root = static_cast<int>(count % rank.nranks);
    DeviceBuffer own(count * 4), all(rank.nranks * count * 4), back(count * 4);
    Fill(own, rank.rank, count);
    unsigned char* from = own.device_bytes();
    if (in_place && rank.rank == root) {
      from = all.device_bytes() + root * count * 4;
      std::memcpy(all.host() + root * count * 4, own.host(), count * 4);
    }
    ASSERT_EQ(
        occlGather(from, all.device(), count, occlInt32, root, rank.comm, rank.stream, nullptr),
        occlSuccess);
    Sync(rank);
    for (int r = 0; rank.rank == root && r < rank.nranks; ++r) {
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(all.as<int32_t>()[r * count + i], Value(r, i));
      }
    }
    unsigned char* to =
        in_place && rank.rank == root ? all.device_bytes() + root * count * 4 : back.device_bytes();
    ASSERT_EQ(
        occlScatter(all.device(), to, count, occlInt32, root, rank.comm, rank.stream, nullptr),
        occlSuccess);
    Sync(rank);
    const int32_t* host =
        in_place && rank.rank == root ? all.as<int32_t>() + root * count : back.as<int32_t>();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(host[i], Value(rank.rank, i));
  });
}

TEST_P(Collectives, AllToAllTransposesBlocks) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    if (in_place) return;
    DeviceBuffer send(rank.nranks * count * 4), recv(rank.nranks * count * 4);
    Fill(send, rank.rank, rank.nranks * count);
    ASSERT_EQ(occlAllToAll(send.device(), recv.device(), count, occlInt32, rank.comm, rank.stream,
                           nullptr),
              occlSuccess);
    Sync(rank);
    for (int r = 0; r < rank.nranks; ++r) {
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(recv.as<int32_t>()[r * count + i], Value(r, rank.rank * count + i));
      }
    }
  });
}

// Uneven parts: rank r has count + 3 * r elements for everyone, none if r is odd and count small.
size_t PartCount(int rank, size_t count) {
  return count < 2 && rank % 2 == 1 ? 0 : count + 3 * rank;
}

TEST_P(Collectives, UnevenPartsArriveWhole) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    if (in_place) return;
    const int n = rank.nranks;
    std::vector<size_t> counts(n), starts(n + 1, 0);
    for (int r = 0; r < n; ++r) {
      counts[r] = PartCount(r, count);
      starts[r + 1] = starts[r] + counts[r];
    }
    DeviceBuffer own(counts[rank.rank] * 4), all(starts[n] * 4), sums(counts[rank.rank] * 4);
    Fill(own, rank.rank, counts[rank.rank]);
    std::vector<void*> parts(n);
    for (int r = 0; r < n; ++r) parts[r] = all.device_bytes() + starts[r] * 4;
    ASSERT_EQ(occlAllGatherv(own.device(), parts.data(), counts.data(), occlInt32, rank.comm,
                             rank.stream, nullptr),
              occlSuccess)
        << occlGetLastError(nullptr);
    Sync(rank);
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < counts[r]; ++i) {
        ASSERT_EQ(all.as<int32_t>()[starts[r] + i], Value(r, i));
      }
    }
    Fill(all, rank.rank, starts[n]);
    ASSERT_EQ(occlReduceScatterv(parts.data(), sums.device(), counts.data(), occlInt32, occlSum,
                                 rank.comm, rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    for (size_t i = 0; i < counts[rank.rank]; ++i) {
      ASSERT_EQ(sums.as<int32_t>()[i], Sum(n, starts[rank.rank] + i));
    }
    const int root = n - 1;
    std::memset(all.host(), 0, starts[n] * 4);
    ASSERT_EQ(occlGatherv(own.device(), counts[rank.rank], parts.data(), counts.data(), occlInt32,
                          root, rank.comm, rank.stream, nullptr),
              occlSuccess);
    ASSERT_EQ(occlScatterv(parts.data(), counts.data(), sums.device(), counts[rank.rank], occlInt32,
                           root, rank.comm, rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    for (size_t i = 0; i < counts[rank.rank]; ++i) {
      ASSERT_EQ(sums.as<int32_t>()[i], Value(rank.rank, i));
    }
  });
}

TEST_P(Collectives, AllToAllvMovesEachPair) {
  Sweep([](const Rank& rank, size_t count, bool in_place) {
    if (in_place) return;
    const int n = rank.nranks;
    const auto pair = [&](int from, int to) { return count + 2 * from + 5 * to; };
    std::vector<size_t> send_counts(n), recv_counts(n);
    std::vector<const void*> sends(n);
    std::vector<void*> recvs(n);
    size_t send_total = 0, recv_total = 0;
    for (int r = 0; r < n; ++r) {
      send_total += send_counts[r] = pair(rank.rank, r);
      recv_total += recv_counts[r] = pair(r, rank.rank);
    }
    DeviceBuffer send(send_total * 4), recv(recv_total * 4);
    size_t at = 0;
    for (int r = 0; r < n; ++r) {
      sends[r] = send.device_bytes() + at * 4;
      for (size_t i = 0; i < send_counts[r]; ++i) {
        send.as<int32_t>()[at + i] = Value(rank.rank * n + r, i);
      }
      at += send_counts[r];
    }
    at = 0;
    for (int r = 0; r < n; ++r) {
      recvs[r] = recv.device_bytes() + at * 4;
      at += recv_counts[r];
    }
    ASSERT_EQ(occlAllToAllv(sends.data(), send_counts.data(), recvs.data(), recv_counts.data(),
                            occlInt32, rank.comm, rank.stream, nullptr),
              occlSuccess);
    Sync(rank);
    at = 0;
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < recv_counts[r]; ++i) {
        ASSERT_EQ(recv.as<int32_t>()[at + i], Value(r * n + rank.rank, i));
      }
      at += recv_counts[r];
    }
  });
}

TEST_P(Collectives, BarrierAwaitsAll) {
  std::atomic<int> arrived{0};
  RunThreads(nranks(), [&](const Rank& rank) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      ASSERT_EQ(occlBarrier(rank.comm, rank.stream, nullptr), occlSuccess);
      Sync(rank);
      ASSERT_GE(arrived.load(), round * rank.nranks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace occl_conformance
