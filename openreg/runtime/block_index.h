// From an address to the block that contains it, without a lock.
#ifndef OPENREG_RUNTIME_BLOCK_INDEX_H_
#define OPENREG_RUNTIME_BLOCK_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openreg/runtime/block.h"
#include "openreg/runtime/status.h"

namespace openreg {

// Three tables over one arena, made of untouched memory (1/64 of the arena's size in addresses):
//   starts[granule]   the block that starts there;
//   bits[granule]     1 where a block starts, with a summary word for the 64 words of a chunk;
//   covers[chunk]     the block that covers the chunk's first byte but starts before it.
// Writers of one chunk are serialised by the lock of the pool that owns it. A reader looks for a
// block that is live while it looks, so the entries that lead to it stand still; entries around it
// may change, and what is found is checked against the block itself.
class BlockIndex {
 public:
  Status Init(size_t arena_size);

  // Writer: the block starts at its offset and has its size; call again after the size changed.
  void Insert(Block* block);
  // Writer: nothing starts at the offset any more.
  void Remove(size_t offset);
  // Writer: no block covers the chunks of the segment any more.
  void RemoveSegment(const Segment& segment);

  // The block that starts exactly at the offset, or NULL.
  Block* StartingAt(size_t offset) const {
    if ((offset & (kGranule - 1)) != 0) return nullptr;
    Block* block = starts_[offset >> kGranuleShift].load(std::memory_order_acquire);
    return block != nullptr && block->Offset() == offset ? block : nullptr;
  }
  // The block that contains the offset, or NULL; it need not be live.
  Block* Containing(size_t offset) const;

 private:
  static constexpr size_t kWordsPerChunk = kChunk / kGranule / 64;
  std::atomic<Block*>* starts_ = nullptr;
  std::atomic<uint64_t>* bits_ = nullptr;
  std::atomic<uint64_t>* summary_ = nullptr;
  std::atomic<Block*>* covers_ = nullptr;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_BLOCK_INDEX_H_
