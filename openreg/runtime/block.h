// A block: a piece of an arena that is, or can be, one allocation.
#ifndef OPENREG_RUNTIME_BLOCK_H_
#define OPENREG_RUNTIME_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace openreg {

class Pool;
struct Block;

inline constexpr int kGranuleShift = 9;
inline constexpr size_t kGranule = size_t{1} << kGranuleShift;  // sizes and offsets are multiples
inline constexpr int kChunkShift = 21;
inline constexpr size_t kChunk = size_t{1} << kChunkShift;  // segments start at multiples
// Allocations up to here live in segments of their own kind, so that they do not split large ones.
// CUDA's limit is 1 MB. Here parameters and activations of most models should share segments: the
// peaks of the two kinds come at different times of a step, and would add up (a small GPT's
// resident memory was 1.05 of the CPU's with 1 MB, and is 0.91).
inline constexpr size_t kSmallLimit = size_t{1} << 18;

// A range taken from the arena at once; its blocks are neighbours in a list and join only with each
// other. All its blocks are in one pool.
struct Segment {
  size_t offset = 0;
  size_t size = 0;
  bool small = false;  // serves allocations up to kSmallLimit
  Block* first = nullptr;
};

// What a block's word says; see Block::word.
namespace block_word {
enum State : uint64_t {
  kUnused = 0,   // no block
  kFree = 1,     // in its pool's free list
  kCached = 2,   // in a front cache
  kLive = 3,     // allocated
  kPending = 4,  // freed by its owner, but not to be reused while there are uses or retains
  kMoving = 5    // freed, on its way to a cache or pool
};
inline constexpr uint64_t kStateMask = 7;
inline constexpr uint64_t kOneUse = 8;                     // uses: bits 3..31
inline constexpr uint64_t kOneRetain = uint64_t{1} << 32;  // retains: bits 32..63
inline constexpr uint64_t kMaxRetains = UINT32_MAX;
inline uint64_t StateOf(uint64_t word) { return word & kStateMask; }
inline uint64_t RetainsOf(uint64_t word) { return word >> 32; }
inline bool Held(uint64_t word) { return (word & ~kStateMask) != 0; }
}  // namespace block_word

// Blocks are never destroyed, only recycled, so a stale pointer to one can be read without harm and
// its word says whether it is live. offset, size and requested are read by other threads through
// the index; everything else belongs to the allocation's owner or to the pool's lock.
struct Block {
  // State, uses (streams to be waited for after the free) and retains in one word, so that a free
  // and a retain that race agree who is first. Stored with release, loaded with acquire.
  std::atomic<uint64_t> word{0};
  std::atomic<size_t> offset{0};
  std::atomic<size_t> size{0};
  std::atomic<size_t> requested{0};
  std::atomic<uint64_t> generation{0};  // differs for each allocation of the process
  std::atomic<Pool*> pool{nullptr};     // constant while the block is not free
  bool small = false;                   // the segment's kind
  uint64_t free_sequence = 0;           // of the pool's stream when the block was freed
  Segment* segment = nullptr;
  Block* previous = nullptr;  // neighbours in the segment, by address
  Block* next = nullptr;
  Block* link = nullptr;  // next in a front cache or in the list of unused blocks

  size_t Offset() const { return offset.load(std::memory_order_relaxed); }
  size_t Size() const { return size.load(std::memory_order_relaxed); }
  uint64_t State() const { return block_word::StateOf(word.load(std::memory_order_acquire)); }
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_BLOCK_H_
