#include "occl/reduce/copy.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace occl::reduce {
namespace {

void CopiesExactly(size_t bytes, size_t dst_shift, size_t src_shift, CopyMode mode) {
  constexpr uint8_t kGuard = 0xa5;
  std::vector<uint8_t> src(bytes + src_shift), dst(bytes + dst_shift + 64, kGuard);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i * 131 + i / 251);
  Copy(dst.data() + dst_shift, src.data() + src_shift, bytes, mode);
  for (size_t i = 0; i < dst.size(); ++i) {
    const bool inside = i >= dst_shift && i < dst_shift + bytes;
    ASSERT_EQ(dst[i], inside ? src[i - dst_shift + src_shift] : kGuard)
        << "byte " << i << " of " << bytes << ", shifts " << dst_shift << ", " << src_shift;
  }
}

TEST(CopyTest, CopiesEverySizeAtEveryAlignment) {
  for (CopyMode mode : {CopyMode::kAuto, CopyMode::kCached, CopyMode::kStream}) {
    for (size_t bytes = 0; bytes < 200; ++bytes) {
      for (size_t shift : {0u, 1u, 7u, 16u, 63u}) CopiesExactly(bytes, shift, shift * 5 % 64, mode);
    }
    for (size_t shift = 0; shift < 64; ++shift) CopiesExactly(1000, shift, 3, mode);
  }
}

TEST(CopyTest, CopiesAroundTheStreamingThreshold) {
  for (size_t bytes : {StreamFromBytes() - 1, StreamFromBytes(), StreamFromBytes() + 65}) {
    CopiesExactly(bytes, 5, 0, CopyMode::kAuto);
  }
}

}  // namespace
}  // namespace occl::reduce
