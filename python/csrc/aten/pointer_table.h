// Which argument of a call came first with a storage: for lists of hundreds of tensors.
#ifndef PYTHON_CSRC_ATEN_POINTER_TABLE_H_
#define PYTHON_CSRC_ATEN_POINTER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace torch_openreg {

// From an address to a number, by open addressing: one allocation for a whole list, where a map of
// nodes would make one for each entry. A null pointer is no key.
class PointerTable {
 public:
  bool empty() const { return count_ == 0; }
  bool reserved() const { return !slots_.empty(); }

  // Makes room for `count` addresses in all.
  void reserve(size_t count) {
    size_t size = kFirstSize;
    while (size < 2 * count) {
      size *= 2;
    }
    if (size > slots_.size()) {
      grow(size);
    }
  }

  // The number that `address` stands for: `number`, if it is new here.
  std::ptrdiff_t insert(const void* address, std::ptrdiff_t number) {
    if (2 * (count_ + 1) > slots_.size()) {
      reserve(count_ + 1);
    }
    Slot& slot = slots_[slot_of(address)];
    if (slot.address == nullptr) {
      slot = {address, number};
      ++count_;
    }
    return slot.number;
  }

 private:
  struct Slot {
    const void* address = nullptr;
    std::ptrdiff_t number = -1;
  };
  static constexpr size_t kFirstSize = 512;  // a power of two, as all sizes

  // Where the address is, or the free place where it would go.
  size_t slot_of(const void* address) const {
    const size_t mask = slots_.size() - 1;
    // Fibonacci hashing: the low bits of an address are always zero.
    size_t slot = (reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15ULL >> 32) & mask;
    while (slots_[slot].address != nullptr && slots_[slot].address != address) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  void grow(size_t size) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
    for (const Slot& slot : old) {
      if (slot.address != nullptr) {
        slots_[slot_of(slot.address)] = slot;
      }
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_POINTER_TABLE_H_
