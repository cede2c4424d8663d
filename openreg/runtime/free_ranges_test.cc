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

TEST(FreeRanges, TellsWhatIsTaken) {
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  FreeRanges ranges(10 * 64, 64);
  EXPECT_EQ(ranges.Taken(), Ranges{});
  size_t first, second, third;
  ASSERT_TRUE(ranges.Take(64, &first) && ranges.Take(100, &second) && ranges.Take(64, &third));
  EXPECT_EQ(ranges.Taken(), (Ranges{{0, 4 * 64}}));
  ranges.Give(second, 100);
  EXPECT_EQ(ranges.Taken(), (Ranges{{0, 64}, {3 * 64, 64}}));
  ranges.Give(first, 64);
  EXPECT_EQ(ranges.Taken(), (Ranges{{3 * 64, 64}}));
  size_t rest;
  ASSERT_TRUE(ranges.Take(6 * 64, &rest));
  EXPECT_EQ(ranges.Taken(), (Ranges{{3 * 64, 7 * 64}})) << "up to the end";
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
