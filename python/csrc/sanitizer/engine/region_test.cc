#include "python/csrc/sanitizer/engine/region.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace torch_openreg::sanitizer {
namespace {

Region make(Address data, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
            std::size_t item = 4) {
  return Region::strided(data, sizes.data(), strides.data(), sizes.size(), item);
}

TEST(RegionTest, ContiguousIsDense) {
  const Region region = make(100, {3, 4}, {4, 1});
  EXPECT_TRUE(region.dense());
  EXPECT_EQ(region.low(), 100U);
  EXPECT_EQ(region.high(), 148U);
}

TEST(RegionTest, ATransposedTensorIsDense) { EXPECT_TRUE(make(0, {4, 3}, {1, 4}).dense()); }

TEST(RegionTest, AnExpandedTensorIsOnlyItsBytes) {
  const Region region = make(8, {1000, 2}, {0, 1});
  EXPECT_TRUE(region.dense());
  EXPECT_EQ(region.high() - region.low(), 8U);
}

TEST(RegionTest, ColumnsOfOneMatrixAreDisjoint) {
  const Region left = make(0, {10, 2}, {4, 1});
  const Region right = make(8, {10, 2}, {4, 1});
  EXPECT_FALSE(left.overlaps(right));
  EXPECT_FALSE(right.overlaps(left));
  EXPECT_TRUE(left.overlaps(make(4, {10, 2}, {4, 1})));
}

TEST(RegionTest, ARowMeetsEveryColumn) {
  const Region row(16, 32);
  EXPECT_TRUE(row.overlaps(make(0, {10, 1}, {4, 1})));
  EXPECT_TRUE(make(12, {10, 1}, {4, 1}).overlaps(row));
}

TEST(RegionTest, TouchingRangesAreDisjoint) {
  EXPECT_FALSE(Region(0, 16).overlaps(Region(16, 32)));
  EXPECT_TRUE(Region(0, 17).overlaps(Region(16, 32)));
}

TEST(RegionTest, AgreesWithCountingBytes) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    std::set<Address> bytes[2];
    Region regions[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<std::int64_t> sizes;
      std::vector<std::int64_t> strides;
      for (std::int64_t dim = draw(0, 3); dim > 0; --dim) {
        sizes.push_back(draw(1, 4));
        strides.push_back(draw(0, 9));
      }
      const auto item = static_cast<std::size_t>(draw(1, 4));
      const auto data = static_cast<Address>(draw(0, 40));
      regions[side] = make(data, sizes, strides, item);
      std::vector<Address> starts{data};
      for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
        std::vector<Address> next;
        for (const Address start : starts) {
          for (std::int64_t k = 0; k < sizes[dim]; ++k) {
            next.push_back(start + static_cast<Address>(k * strides[dim]) * item);
          }
        }
        starts = next;
      }
      for (const Address start : starts) {
        for (std::size_t k = 0; k < item; ++k) {
          bytes[side].insert(start + k);
        }
      }
      EXPECT_EQ(regions[side].low(), *bytes[side].begin());
      EXPECT_EQ(regions[side].high(), *bytes[side].rbegin() + 1);
    }
    bool shared = false;
    for (const Address byte : bytes[0]) {
      shared = shared || bytes[1].contains(byte);
    }
    EXPECT_EQ(regions[0].overlaps(regions[1]), shared);
  }
}

}  // namespace
}  // namespace torch_openreg::sanitizer
