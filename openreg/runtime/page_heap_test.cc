#include "openreg/runtime/page_heap.h"

#include <gtest/gtest.h>

#include "openreg/runtime/block.h"

namespace openreg {
namespace {

TEST(PageHeap, TakesTheLowestFit) {
  PageHeap heap(10 * kChunk);
  size_t a, b, c, d;
  ASSERT_TRUE(heap.Allocate(2 * kChunk, &a));
  ASSERT_TRUE(heap.Allocate(1, &b));  // a whole chunk
  ASSERT_TRUE(heap.Allocate(3 * kChunk, &c));
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, 2 * kChunk);
  EXPECT_EQ(c, 3 * kChunk);
  EXPECT_FALSE(heap.Allocate(5 * kChunk, &d));
  heap.Free(a, 2 * kChunk);
  ASSERT_TRUE(heap.Allocate(kChunk, &d));
  EXPECT_EQ(d, 0u);
  EXPECT_EQ(heap.LargestFree(), 4 * kChunk);
}

TEST(PageHeap, FreedNeighboursJoin) {
  PageHeap heap(6 * kChunk);
  size_t at[6];
  for (size_t& offset : at) ASSERT_TRUE(heap.Allocate(kChunk, &offset));
  for (int i : {0, 2, 4, 5, 3, 1}) heap.Free(at[i], kChunk);
  EXPECT_EQ(heap.LargestFree(), 6 * kChunk);
}

}  // namespace
}  // namespace openreg
