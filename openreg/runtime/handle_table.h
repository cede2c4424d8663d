// Handles that can be checked: an opaque pointer that encodes (kind, slot, generation) and is never
// dereferenced. A destroyed handle, one of another kind and a made-up one are all recognised: a
// slot's generation goes up with each use, 32 bits of it.
#ifndef OPENREG_RUNTIME_HANDLE_TABLE_H_
#define OPENREG_RUNTIME_HANDLE_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace openreg {

// Objects of T live in slots for ever and are reused, first in first out and only when there are
// kReuseDelay free ones; T's state is its owner's business. Kind is 1..15.
template <class T, unsigned Kind, class Opaque>
class HandleTable {
 public:
  // The object of a live handle, or NULL. Lock-free.
  T* Get(Opaque handle) const {
    uintptr_t value = reinterpret_cast<uintptr_t>(handle);
    if ((value & kKindMask) != Kind) return nullptr;
    size_t index = (value >> kKindBits) & kIndexMask;
    const Chunk* chunk = chunks_[index / kChunkSize].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Slot& slot = (*chunk)[index % kChunkSize];
    uint64_t generation = GenerationOf(value);
    if ((generation & 1) == 0) return nullptr;  // never the generation of a live slot
    if (slot.generation.load(std::memory_order_acquire) != generation) return nullptr;
    return const_cast<T*>(&slot.object);
  }

  // A slot with a live handle; NULL if a million are in use. `prepare` sets the object up before
  // anybody can find it.
  template <class F>
  Opaque Insert(F prepare) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t index;
    if (free_.size() > kReuseDelay || (count_ == kMaxSlots && !free_.empty())) {
      index = free_.front();
      free_.pop_front();
    } else if (count_ < kMaxSlots) {
      index = count_++;
      if (index % kChunkSize == 0) {
        owned_[index / kChunkSize] = std::make_unique<Chunk>();
        chunks_[index / kChunkSize].store(owned_[index / kChunkSize].get(),
                                          std::memory_order_release);
      }
    } else {
      return nullptr;
    }
    Slot& slot = (*owned_[index / kChunkSize])[index % kChunkSize];
    uint32_t generation = slot.generation.load(std::memory_order_relaxed) + 1;  // odd: live
    auto handle = reinterpret_cast<Opaque>(uintptr_t{generation} << (kKindBits + kIndexBits) |
                                           index << kKindBits | Kind);
    prepare(&slot.object, handle);
    slot.generation.store(generation, std::memory_order_release);
    return handle;
  }

  // Ends the handle. Returns the object if this call did it, NULL if the handle was not live. The
  // object's slot is not reused before Recycle.
  T* Remove(Opaque handle) {
    T* object = Get(handle);
    if (object == nullptr) return nullptr;
    auto generation = static_cast<uint32_t>(GenerationOf(reinterpret_cast<uintptr_t>(handle)));
    if (!SlotOf(handle).generation.compare_exchange_strong(generation, generation + 1,
                                                           std::memory_order_acq_rel)) {
      return nullptr;
    }
    return object;
  }

  // The slot of a removed handle may be used again.
  void Recycle(Opaque handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back((reinterpret_cast<uintptr_t>(handle) >> kKindBits) & kIndexMask);
  }

 private:
  static constexpr unsigned kKindBits = 4, kIndexBits = 20;
  static constexpr uintptr_t kKindMask = (1u << kKindBits) - 1;
  static constexpr size_t kIndexMask = (size_t{1} << kIndexBits) - 1;
  static constexpr size_t kMaxSlots = size_t{1} << kIndexBits;
  static constexpr size_t kChunkSize = 256;
  static constexpr size_t kReuseDelay = 64;

  struct Slot {
    std::atomic<uint32_t> generation{0};
    T object;
  };
  using Chunk = std::array<Slot, kChunkSize>;

  // More bits than a slot's generation has, so that no bit of a handle is ignored.
  static uint64_t GenerationOf(uintptr_t value) { return value >> (kKindBits + kIndexBits); }
  Slot& SlotOf(Opaque handle) {
    size_t index = (reinterpret_cast<uintptr_t>(handle) >> kKindBits) & kIndexMask;
    return (*chunks_[index / kChunkSize].load(std::memory_order_acquire))[index % kChunkSize];
  }

  std::array<std::atomic<Chunk*>, kMaxSlots / kChunkSize> chunks_{};
  std::mutex mutex_;  // guards the rest
  std::array<std::unique_ptr<Chunk>, kMaxSlots / kChunkSize> owned_;
  std::deque<size_t> free_;
  size_t count_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_HANDLE_TABLE_H_
