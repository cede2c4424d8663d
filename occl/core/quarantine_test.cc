// A result that a peer may still write is held, and let go when the peer is out.
#include "occl/core/quarantine.h"

#include <memory>

#include "gtest/gtest.h"

namespace occl {
namespace {

constexpr uint64_t kRound = 7;
// Larger than what the runtime serves from small blocks, so that a free block is the next one
// given.
constexpr size_t kBytes = size_t{64} << 20;

// Rank 0 of two; the test plays rank 1.
class QuarantineTest : public testing::Test {
 protected:
  void SetUp() override {
    UniqueFd fd;
    ASSERT_TRUE(ControlSegment::Create(2, &fd).ok());
    ASSERT_TRUE(ControlSegment::Map(fd, 2, &gathering_.segment).ok());
    gathering_.cards.resize(2);
    gathering_.pidfds.resize(2);
    segment_ = gathering_.segment.get();
    bells_ = std::make_unique<Bells>(segment_, 0);
    peers_ = std::make_unique<Peers>(&gathering_);
    quarantine_ = std::make_unique<Quarantine>(segment_, 0, bells_.get(), peers_.get());
    ASSERT_EQ(orMalloc(&buffer_, kBytes), orSuccess);
    Post(0, kRound);
  }

  void Post(int rank, uint64_t round) { segment_->round(rank, kRound).round.store(round); }

  // Frees the buffer and says whether the runtime then gives it to somebody else.
  bool IsReused() {
    EXPECT_EQ(orFree(buffer_), orSuccess);
    void* next = nullptr;
    EXPECT_EQ(orMalloc(&next, kBytes), orSuccess);
    EXPECT_EQ(orFree(next), orSuccess);
    return next == buffer_;
  }

  Gathering gathering_;
  ControlSegment* segment_ = nullptr;
  std::unique_ptr<Bells> bells_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<Quarantine> quarantine_;
  void* buffer_ = nullptr;
};

TEST_F(QuarantineTest, HoldsABufferThatAPeerMayWriteAndLetsItGoWhenThePeerIsDone) {
  Post(1, kRound);
  quarantine_->Take(buffer_, kRound);
  EXPECT_EQ(quarantine_->Drain(Deadline::After(0)), 1u);
  EXPECT_FALSE(IsReused());
  segment_->rank(1).done.store(kRound);
  EXPECT_EQ(quarantine_->Drain(Deadline::After(0)), 0u);
}

TEST_F(QuarantineTest, LetsGoWhenThePeerHasQuit) {
  Post(1, kRound);
  quarantine_->Take(buffer_, kRound);
  segment_->rank(1).quit.store(1);
  EXPECT_EQ(quarantine_->Drain(Deadline::After(0)), 0u);
  EXPECT_TRUE(IsReused());
}

TEST_F(QuarantineTest, HoldsNothingWhenAPeerHasNotBegun) {
  Post(1, kRound - kRoundPlaces);
  quarantine_->Take(buffer_, kRound);
  EXPECT_TRUE(IsReused());
}

TEST_F(QuarantineTest, HoldsNothingWhenThePeerHasGoneOn) {
  Post(1, kRound + kRoundPlaces);
  segment_->rank(1).done.store(kRound + 1);
  quarantine_->Take(buffer_, kRound);
  EXPECT_TRUE(IsReused());
}

TEST_F(QuarantineTest, DrainWaitsNoLongerThanItsDeadline) {
  Post(1, kRound);
  quarantine_->Take(buffer_, kRound);
  EXPECT_EQ(quarantine_->Drain(Deadline::After(60)), 1u);
  EXPECT_EQ(orFree(buffer_), orSuccess);
}

}  // namespace
}  // namespace occl
