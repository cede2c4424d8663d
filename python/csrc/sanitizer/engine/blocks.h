// The blocks of the allocators: which memory is live, and what was given back too early.
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_BLOCKS_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_BLOCKS_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <vector>

#include "python/csrc/sanitizer/engine/access.h"

namespace torch_openreg::sanitizer {

// A live allocation of device memory, made for the work of one timeline.
struct Block {
  Address low = 0;
  std::size_t bytes = 0;
  Timeline timeline = 0;
  std::uint64_t serial = 0;        // of allocations and frees, in their order
  std::vector<Timeline> recorded;  // Tensor.record_stream
};

// A block that was freed. Its accesses were not ordered before the free: the next memory of the
// same timeline may be the same, and whoever uses that has to be ordered after them.
struct Freed {
  Block block;
  Place place = 0;
  std::uint64_t serial = 0;
  std::vector<AccessPtr> accesses;
};

// Not thread-safe.
class Blocks {
 public:
  // Frees that are remembered at most: for use after free, and with accesses.
  static constexpr std::size_t kMaxFreed = 4096;
  static constexpr std::size_t kMaxUnordered = 256;

  void allocate(Address low, std::size_t bytes, Timeline timeline);
  // Takes the block that begins at `low` out; false if it is not known.
  bool take(Address low, Block* taken);
  // Remembers a free: for use after free, and, where `accesses` are left, for reuse.
  void freed(Block block, Place place, std::vector<AccessPtr> accesses);

  // The live block that contains `at`, or nullptr.
  Block* find(Address at);
  // The last free of a block that contained `at`, if that has not been allocated again.
  const Freed* find_freed(Address at) const;
  // Those that memory of `block` may be, or has been.
  template <typename F>
  void for_each_reuse(const Block& block, F&& visit) {
    for (auto entry = unordered_.begin(); entry != unordered_.end();) {
      const bool later = block.serial > entry->serial;
      const bool overlaps = block.low < entry->block.low + entry->block.bytes &&
                            entry->block.low < block.low + block.bytes;
      if (later && (overlaps || block.timeline == entry->block.timeline)) {
        visit(*entry);
      }
      entry = entry->accesses.empty() ? unordered_.erase(entry) : std::next(entry);
    }
  }
  bool has_unordered() const { return !unordered_.empty(); }

 private:
  std::uint64_t serial_ = 0;
  std::map<Address, Block> live_;
  std::list<Freed> unordered_;
  std::map<Address, Freed> dead_;  // without accesses
  std::deque<Address> dead_order_;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_BLOCKS_H_
