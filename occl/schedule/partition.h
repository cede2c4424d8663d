// Who handles which elements: pure functions of the arguments, so that every rank computes the same
// answer for every other rank. Counts are elements.
#ifndef OCCL_SCHEDULE_PARTITION_H_
#define OCCL_SCHEDULE_PARTITION_H_

#include <cstdint>

namespace occl::schedule {

inline constexpr uint64_t kLineBytes = 64;

struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
  uint64_t end() const { return begin + count; }
};

// The share of `rank` when `count` elements are divided among `nranks`: consecutive ranges in rank
// order that cover [0, count). Every share begins at a multiple of 64 bytes from the start of the
// buffer, so that no cache line has two writers where the buffer is aligned, and shares differ by
// at most one line. Counts of fewer lines than ranks leave some shares empty. element_bytes divides
// 64.
Range ShareOf(uint64_t count, uint32_t element_bytes, int nranks, int rank);

// Elements per block when `nranks` sources and a destination pass through a second-level cache
// together: a multiple of a line. All ranks must agree on it, so it depends on nothing but the
// arguments (1 MB of cache is taken for granted).
uint64_t BlockElements(uint32_t element_bytes, int nranks);

// The blocks of a range; the last one may be shorter. A range of 0 elements has none.
inline uint64_t NumBlocks(const Range& range, uint64_t block_elems) {
  return (range.count + block_elems - 1) / block_elems;
}
inline Range BlockOf(const Range& range, uint64_t block_elems, uint64_t index) {
  const uint64_t skip = index * block_elems;
  const uint64_t left = range.count - skip;
  return {range.begin + skip, left < block_elems ? left : block_elems};
}

// The i-th peer that `rank` turns to, i in [1, nranks): at any i, all ranks are at different peers.
inline int PeerAt(int rank, int nranks, int i) { return (rank + i) % nranks; }

// Staged operations move `parts` parts of `count` elements each through a slot of slot_bytes, a
// window of every part at a time.
inline uint64_t WindowElements(uint64_t slot_bytes, uint32_t element_bytes, int parts) {
  return slot_bytes / (static_cast<uint64_t>(parts) * element_bytes);
}

}  // namespace occl::schedule

#endif  // OCCL_SCHEDULE_PARTITION_H_
