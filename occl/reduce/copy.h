// Copies of large arrays.
#ifndef OCCL_REDUCE_COPY_H_
#define OCCL_REDUCE_COPY_H_

#include <cstddef>

namespace occl::reduce {

enum class CopyMode {
  kAuto,    // kStream from StreamFromBytes() on
  kCached,  // ordinary stores
  kStream,  // stores past the caches: for blocks of a large array that nobody reads soon
};

// Non-temporal stores save reading the destination's lines first. They halve copies that fit the
// caches and win 1.2 to 1.5 times beyond. Where that begins was measured: 4 MB on Intel (behind the
// second-level cache), 16 MB on AMD (behind the third).
size_t StreamFromBytes();

// As memcpy: the ranges do not overlap; no alignment needed. All stores are ordered before later
// stores of this thread, non-temporal ones too.
void Copy(void* dst, const void* src, size_t bytes, CopyMode mode = CopyMode::kAuto);

}  // namespace occl::reduce

#endif  // OCCL_REDUCE_COPY_H_
