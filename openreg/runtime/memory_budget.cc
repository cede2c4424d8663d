#include "openreg/runtime/memory_budget.h"

#include "openreg/runtime/config.h"

namespace openreg {

bool MemoryBudget::Reserve(uint64_t bytes) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  if (SystemHas(bytes)) return true;
  Release(bytes);
  return false;
}

bool MemoryBudget::SystemHas(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (credit_ < bytes) {
    uint64_t available = SystemAvailableBytes();
    if (available < bytes) return false;
    // Other processes take memory too: look again after a small part of it.
    credit_ = bytes + (available - bytes) / 32;
  }
  credit_ -= bytes;
  return true;
}

}  // namespace openreg
