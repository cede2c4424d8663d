// Exhaustive: 1..17 ranks, counts around every boundary, all element sizes.
#include <vector>

#include "gtest/gtest.h"
#include "occl/schedule/choice.h"
#include "occl/schedule/partition.h"

namespace occl::schedule {
namespace {

constexpr int kMaxRanks = 17;
constexpr uint32_t kElementBytes[] = {1, 2, 4, 8, 16};

std::vector<uint64_t> AwkwardCounts(uint32_t element_bytes, int nranks) {
  const uint64_t line = kLineBytes / element_bytes, block = BlockElements(element_bytes, nranks);
  const uint64_t n = static_cast<uint64_t>(nranks);
  std::vector<uint64_t> counts = {0, 1, 2, 3, 5, 7, 13, 97, 1009, 65537};
  for (uint64_t edge : {line, line * n, n, block, block * n, 3 * block * n}) {
    counts.insert(counts.end(), {edge - 1, edge, edge + 1});
  }
  return counts;
}

template <class Check>
void ForAll(Check check) {
  for (int nranks = 1; nranks <= kMaxRanks; ++nranks) {
    for (uint32_t element_bytes : kElementBytes) {
      for (uint64_t count : AwkwardCounts(element_bytes, nranks)) {
        SCOPED_TRACE(testing::Message() << nranks << " ranks, " << count << " elements of "
                                        << element_bytes << " bytes");
        check(nranks, element_bytes, count);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(PartitionTest, SharesCoverTheBufferInOrderOnLineBoundaries) {
  ForAll([](int nranks, uint32_t element_bytes, uint64_t count) {
    uint64_t next = 0, largest = 0, smallest = UINT64_MAX;
    for (int rank = 0; rank < nranks; ++rank) {
      const Range share = ShareOf(count, element_bytes, nranks, rank);
      ASSERT_EQ(share.begin, next);
      if (share.count > 0) {
        ASSERT_EQ(share.begin * element_bytes % kLineBytes, 0u);
      }
      next = share.end();
      largest = std::max(largest, share.count * element_bytes);
      smallest = std::min(smallest, share.count * element_bytes);
      ASSERT_LE(share.count, ShareOf(count, element_bytes, nranks, 0).count);
    }
    ASSERT_EQ(next, count);
    ASSERT_LE(largest - smallest, 2 * kLineBytes);  // one line, and the unfinished last one
  });
}

TEST(PartitionTest, SharesOfTheLargestCountDoNotOverflow) {
  for (int nranks = 1; nranks <= kMaxRanks; ++nranks) {
    for (uint32_t element_bytes : kElementBytes) {
      const uint64_t count = (uint64_t{1} << 63) / element_bytes;  // no buffer is larger
      uint64_t next = 0;
      for (int rank = 0; rank < nranks; ++rank) {
        const Range share = ShareOf(count, element_bytes, nranks, rank);
        ASSERT_EQ(share.begin, next);
        next = share.end();
      }
      ASSERT_EQ(next, count);
    }
  }
}

TEST(PartitionTest, BlocksCoverTheirRange) {
  ForAll([](int nranks, uint32_t element_bytes, uint64_t count) {
    const uint64_t block_elems = BlockElements(element_bytes, nranks);
    ASSERT_GT(block_elems, 0u);
    ASSERT_EQ(block_elems * element_bytes % kLineBytes, 0u);
    const Range range = {7, count};
    uint64_t next = 7;
    for (uint64_t b = 0; b < NumBlocks(range, block_elems); ++b) {
      const Range block = BlockOf(range, block_elems, b);
      ASSERT_EQ(block.begin, next);
      ASSERT_GT(block.count, 0u);
      ASSERT_LE(block.count, block_elems);
      next = block.end();
    }
    ASSERT_EQ(next, range.end());
  });
}

TEST(PartitionTest, EachTurnSendsEveryRankToAnotherPeer) {
  for (int nranks = 1; nranks <= kMaxRanks; ++nranks) {
    for (int i = 1; i < nranks; ++i) {
      std::vector<int> visitors(static_cast<size_t>(nranks));
      for (int rank = 0; rank < nranks; ++rank) {
        const int peer = PeerAt(rank, nranks, i);
        EXPECT_NE(peer, rank);
        ++visitors[static_cast<size_t>(peer)];
      }
      for (int v : visitors) EXPECT_EQ(v, 1);
    }
  }
}

TEST(PartitionTest, WindowsFitTheirSlot) {
  for (int parts = 1; parts <= kMaxRanks; ++parts) {
    for (uint32_t element_bytes : kElementBytes) {
      const uint64_t window = WindowElements(65536, element_bytes, parts);
      EXPECT_GT(window, 0u);
      const uint64_t stride = static_cast<uint64_t>(parts) * element_bytes;
      EXPECT_LE(window * stride, 65536u);
      EXPECT_GT((window + 1) * stride, 65536u);
    }
  }
}

TEST(ChoiceTest, ParsesTheNamesAndNothingElse) {
  for (Algorithm algorithm : {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kStaged}) {
    Algorithm parsed = Algorithm::kOneshot;
    EXPECT_TRUE(ParseAlgorithm(AlgorithmName(algorithm), &parsed));
    EXPECT_EQ(parsed, algorithm);
  }
  for (const char* text : {"", "Direct", "ring", "direct "}) {
    Algorithm parsed = Algorithm::kStaged;
    EXPECT_FALSE(ParseAlgorithm(text, &parsed));
    EXPECT_EQ(parsed, Algorithm::kStaged);
  }
}

TEST(ChoiceTest, NeverChoosesWhatDoesNotFit) {
  const Algorithm all[] = {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kStaged};
  for (int nranks = 1; nranks <= kMaxRanks; ++nranks) {
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{65536},
                           uint64_t{65537}, uint64_t{1} << 30}) {
      for (bool mapped : {false, true}) {
        for (int force = -1; force < 3; ++force) {
          for (bool reduces_to_all : {false, true}) {
            Query query = {reduces_to_all, nranks, nranks > 2, bytes, 65536, mapped, nullptr};
            if (force >= 0) query.forced = &all[force];
            const Algorithm choice = Choose(query);
            EXPECT_TRUE(choice != Algorithm::kDirect || mapped);
            EXPECT_TRUE(choice != Algorithm::kOneshot || bytes <= query.slot_bytes);
          }
        }
      }
    }
  }
}

TEST(ChoiceTest, TakesTheForcedOneWhereItFits) {
  const Algorithm direct = Algorithm::kDirect, staged = Algorithm::kStaged;
  const Algorithm oneshot = Algorithm::kOneshot;
  EXPECT_EQ(Choose({true, 2, false, 8, 65536, true, &direct}), Algorithm::kDirect);
  EXPECT_EQ(Choose({true, 2, false, 8, 65536, true, &staged}), Algorithm::kStaged);
  EXPECT_EQ(Choose({true, 2, false, 60000, 65536, true, &oneshot}), Algorithm::kOneshot);
  EXPECT_EQ(Choose({true, 2, false, 1 << 20, 65536, true, &oneshot}), Algorithm::kDirect);
}

TEST(ChoiceTest, SmallGoesOneshotAndLargeGoesDirect) {
  EXPECT_EQ(Choose({true, 2, false, 8, 65536, true, nullptr}), Algorithm::kOneshot);
  EXPECT_EQ(Choose({true, 2, false, 1 << 20, 65536, true, nullptr}), Algorithm::kDirect);
  EXPECT_EQ(Choose({true, 2, false, 1 << 20, 65536, false, nullptr}), Algorithm::kStaged);
}

}  // namespace
}  // namespace occl::schedule
