#include "openreg/runtime/block_index.h"

#include <errno.h>
#include <sys/mman.h>

namespace openreg {
namespace {

static_assert(kChunk / kGranule == 64 * 64, "one summary word covers a chunk");

template <class T>
bool MapTable(size_t count, T** table) {
  size_t size = count * sizeof(T);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, size, MADV_DONTDUMP);
  madvise(memory, size, MADV_DONTFORK);
  *table = static_cast<T*>(memory);  // zero pages are valid, empty atomics
  return true;
}

uint64_t BitsUpTo(unsigned bit) { return ~uint64_t{0} >> (63 - bit); }
unsigned HighestBit(uint64_t word) { return 63 - static_cast<unsigned>(__builtin_clzll(word)); }

}  // namespace

Status BlockIndex::Init(size_t arena_size) {
  size_t chunks = (arena_size + kChunk - 1) >> kChunkShift;
  if (!MapTable(chunks << (kChunkShift - kGranuleShift), &starts_) ||
      !MapTable(chunks * kWordsPerChunk, &bits_) || !MapTable(chunks, &summary_) ||
      !MapTable(chunks, &covers_)) {
    return SystemError("mmap of the allocator's tables", errno);
  }
  return Status();
}

void BlockIndex::Insert(Block* block) {
  size_t offset = block->Offset();
  size_t granule = offset >> kGranuleShift;
  size_t word = granule >> 6;
  starts_[granule].store(block, std::memory_order_release);
  bits_[word].store(bits_[word].load(std::memory_order_relaxed) | uint64_t{1} << (granule & 63),
                    std::memory_order_release);
  size_t chunk = offset >> kChunkShift;
  summary_[chunk].store(
      summary_[chunk].load(std::memory_order_relaxed) | uint64_t{1} << (word % kWordsPerChunk),
      std::memory_order_release);
  size_t last = (offset + block->Size() - 1) >> kChunkShift;
  for (size_t i = chunk + 1; i <= last; ++i) covers_[i].store(block, std::memory_order_release);
}

void BlockIndex::Remove(size_t offset) {
  size_t granule = offset >> kGranuleShift;
  size_t word = granule >> 6;
  uint64_t left = bits_[word].load(std::memory_order_relaxed) & ~(uint64_t{1} << (granule & 63));
  bits_[word].store(left, std::memory_order_release);
  if (left == 0) {
    size_t chunk = offset >> kChunkShift;
    summary_[chunk].store(
        summary_[chunk].load(std::memory_order_relaxed) & ~(uint64_t{1} << (word % kWordsPerChunk)),
        std::memory_order_release);
  }
  starts_[granule].store(nullptr, std::memory_order_release);
}

void BlockIndex::RemoveSegment(const Segment& segment) {
  size_t last = (segment.offset + segment.size - 1) >> kChunkShift;
  for (size_t i = segment.offset >> kChunkShift; i <= last; ++i) {
    covers_[i].store(nullptr, std::memory_order_release);
  }
}

Block* BlockIndex::Containing(size_t offset) const {
  size_t granule = offset >> kGranuleShift;
  size_t chunk = offset >> kChunkShift;
  size_t first_word = chunk * kWordsPerChunk;
  unsigned word = static_cast<unsigned>((granule >> 6) - first_word);
  Block* block = nullptr;
  uint64_t bits = bits_[first_word + word].load(std::memory_order_acquire) &
                  BitsUpTo(static_cast<unsigned>(granule & 63));
  if (bits == 0 && word > 0) {
    uint64_t words = summary_[chunk].load(std::memory_order_acquire) & BitsUpTo(word - 1);
    if (words != 0) {
      word = HighestBit(words);
      bits = bits_[first_word + word].load(std::memory_order_acquire);
    }
  }
  if (bits != 0) {
    size_t start = ((first_word + word) << 6) + HighestBit(bits);
    block = starts_[start].load(std::memory_order_acquire);
  } else {
    block = covers_[chunk].load(std::memory_order_acquire);
  }
  if (block == nullptr || offset - block->Offset() >= block->Size()) return nullptr;
  return block;
}

}  // namespace openreg
