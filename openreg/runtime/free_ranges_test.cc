#include "openreg/runtime/free_ranges.h"

#include <gtest/gtest.h>

namespace openreg {
namespace {

constexpr size_t kUnit = size_t{1} << 16;

TEST(FreeRanges, TakesTheLowestFit) {
  FreeRanges ranges(10 * kUnit, kUnit);
  size_t a, b, c, d;
  ASSERT_TRUE(ranges.Take(2 * kUnit, &a));
  ASSERT_TRUE(ranges.Take(1, &b));  // a whole unit
  ASSERT_TRUE(ranges.Take(3 * kUnit, &c));
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, 2 * kUnit);
  EXPECT_EQ(c, 3 * kUnit);
  EXPECT_FALSE(ranges.Take(5 * kUnit, &d));
  ranges.Give(a, 2 * kUnit);
  ASSERT_TRUE(ranges.Take(kUnit, &d));
  EXPECT_EQ(d, 0u);
  EXPECT_EQ(ranges.Largest(), 4 * kUnit);
}

TEST(FreeRanges, FreedNeighboursJoin) {
  FreeRanges ranges(6 * kUnit, kUnit);
  size_t at[6];
  for (size_t& offset : at) ASSERT_TRUE(ranges.Take(kUnit, &offset));
  EXPECT_EQ(ranges.Largest(), 0u);
  for (int i : {0, 2, 4, 5, 3, 1}) ranges.Give(at[i], kUnit - 1);  // rounded as Take does
  EXPECT_EQ(ranges.Largest(), 6 * kUnit);
}

TEST(FreeRanges, NothingIsFreeBeforeTheReset) {
  FreeRanges ranges;
  size_t offset;
  EXPECT_FALSE(ranges.Take(1, &offset));
  ranges.Reset(3 * kUnit - 1, kUnit);  // the last, incomplete unit is not used
  EXPECT_EQ(ranges.Largest(), 2 * kUnit);
}

}  // namespace
}  // namespace openreg
