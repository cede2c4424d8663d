#include "python/csrc/sanitizer/engine/shadow.h"

#include <gtest/gtest.h>

namespace torch_openreg::sanitizer {
namespace {

AccessPtr access(Timeline timeline, std::uint64_t number, bool writes, Region region) {
  Operation operation;
  operation.epoch = {timeline, number};
  Access made;
  made.operation = std::make_shared<const Operation>(operation);
  made.writes = writes;
  made.region = std::move(region);
  return std::make_shared<const Access>(std::move(made));
}

AccessPtr read(Timeline timeline, std::uint64_t number, Address low, Address high) {
  return access(timeline, number, false, Region(low, high));
}
AccessPtr write(Timeline timeline, std::uint64_t number, Address low, Address high) {
  return access(timeline, number, true, Region(low, high));
}

VectorClock clock(std::vector<std::uint64_t> numbers) {
  VectorClock made;
  for (Timeline timeline = 0; timeline < numbers.size(); ++timeline) {
    made.advance_to(timeline, numbers[timeline]);
  }
  return made;
}

TEST(ShadowTest, UnorderedWritesConflict) {
  Shadow shadow;
  const AccessPtr first = write(0, 1, 0, 8);
  EXPECT_TRUE(shadow.add(first, clock({1})).empty());
  EXPECT_EQ(shadow.add(write(1, 1, 4, 12), clock({0, 1})), std::vector{first});
}

TEST(ShadowTest, OrderedWritesDoNot) {
  Shadow shadow;
  shadow.add(write(0, 1, 0, 8), clock({1}));
  EXPECT_TRUE(shadow.add(write(1, 1, 0, 8), clock({1, 1})).empty());
}

TEST(ShadowTest, ReadsDoNotConflictWithReads) {
  Shadow shadow;
  shadow.add(read(0, 1, 0, 8), clock({1}));
  EXPECT_TRUE(shadow.add(read(1, 1, 0, 8), clock({0, 1})).empty());
}

TEST(ShadowTest, AWriteMeetsTheReadsOfEveryStream) {
  Shadow shadow;
  const AccessPtr one = read(0, 1, 0, 8);
  const AccessPtr other = read(1, 1, 0, 8);
  shadow.add(one, clock({1}));
  shadow.add(other, clock({0, 1}));
  EXPECT_EQ(shadow.add(write(2, 1, 0, 8), clock({0, 0, 1})), (std::vector{one, other}));
}

TEST(ShadowTest, PartsOfARangeAreToldApart) {
  Shadow shadow;
  const AccessPtr low = write(0, 1, 0, 8);
  const AccessPtr high = write(0, 2, 8, 16);
  shadow.add(low, clock({1}));
  shadow.add(high, clock({2}));
  EXPECT_EQ(shadow.add(read(1, 1, 10, 12), clock({1, 1})), std::vector{high});
  EXPECT_TRUE(shadow.add(read(1, 2, 0, 8), clock({1, 2})).empty());
}

TEST(ShadowTest, AConflictIsReturnedOnceHoweverOftenItsRangeWasSplit) {
  Shadow shadow;
  const AccessPtr whole = write(0, 1, 0, 100);
  shadow.add(whole, clock({1}));
  shadow.add(read(0, 2, 10, 20), clock({2}));
  shadow.add(read(0, 3, 30, 40), clock({3}));
  const auto found = shadow.add(read(1, 1, 0, 100), clock({0, 1}));
  EXPECT_EQ(found, std::vector{whole});
}

TEST(ShadowTest, AWriteOfTheWholeLeavesOneCell) {
  Shadow shadow;
  for (Address at = 0; at < 100; at += 10) {
    shadow.add(write(0, at / 10 + 1, at, at + 10), clock({at / 10 + 1}));
  }
  EXPECT_EQ(shadow.cells(), 10U);
  shadow.add(write(0, 20, 0, 100), clock({20}));
  EXPECT_EQ(shadow.cells(), 1U);
}

TEST(ShadowTest, AStridedWriteHidesNothingBetweenItsRuns) {
  Shadow shadow;
  const AccessPtr whole = write(0, 1, 0, 64);
  shadow.add(whole, clock({1}));
  const std::int64_t sizes[] = {4, 1};
  const std::int64_t strides[] = {4, 1};
  shadow.add(access(1, 1, true, Region::strided(0, sizes, strides, 2, 4)), clock({1, 1}));
  // Timeline 2 knows of the strided write, and so of the whole: both are ordered.
  EXPECT_TRUE(shadow.add(read(2, 1, 0, 64), clock({1, 1, 1})).empty());
  // Timeline 3 knows of neither, and reads between the runs.
  EXPECT_EQ(shadow.add(read(3, 1, 4, 8), clock({0, 0, 0, 1})), std::vector{whole});
}

TEST(ShadowTest, WhatIsTakenIsForgotten) {
  Shadow shadow;
  const AccessPtr first = write(0, 1, 0, 32);
  shadow.add(first, clock({1}));
  EXPECT_EQ(shadow.take(8, 16), std::vector{first});
  EXPECT_FALSE(shadow.known(8, 16));
  EXPECT_TRUE(shadow.known(0, 9));
  EXPECT_TRUE(shadow.add(write(1, 1, 8, 16), clock({0, 1})).empty());
  EXPECT_EQ(shadow.add(write(1, 2, 16, 17), clock({0, 2})), std::vector{first});
}

TEST(ShadowTest, TheNumberOfAccessesIsBounded) {
  Shadow shadow;
  for (std::uint64_t i = 1; i <= 3 * Shadow::kMaxAccesses; ++i) {
    const std::int64_t sizes[] = {2, 1};
    const std::int64_t strides[] = {static_cast<std::int64_t>(i) + 1, 1};
    shadow.add(access(0, i, false, Region::strided(0, sizes, strides, 2, 4)), clock({i}));
  }
  EXPECT_LE(shadow.take(0, 4).size(), Shadow::kMaxAccesses);
}

}  // namespace
}  // namespace torch_openreg::sanitizer
