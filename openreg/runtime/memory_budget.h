// The memory limit of the process, over all its devices, counted where segments are taken.
#ifndef OPENREG_RUNTIME_MEMORY_BUDGET_H_
#define OPENREG_RUNTIME_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "openreg/runtime/promises.h"

namespace openreg {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Counts `bytes`, or returns false if that would exceed the limit or what the system can still
  // give, promises to other processes considered (it is asked once per some growth, not each time).
  // *scarce (NULL: not asked): the system has so little left that the pages had better be taken
  // now, where others who look see it.
  bool Reserve(uint64_t bytes, bool* scarce = nullptr);
  void Release(uint64_t bytes);
  // The file whose pages the reserved bytes become as they are touched: what is reserved and not
  // touched yet is still the system's to give, and promised already. It stays open.
  void AddFile(int fd);

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  // Both with `bytes` in used_ already.
  bool SystemHas(uint64_t bytes, bool* scarce);
  // Lets `lock`, of mutex_, go where it waits.
  bool AskSystem(uint64_t bytes, std::unique_lock<std::mutex>* lock, uint64_t* left);
  // Reserved before, by this process, and not touched yet.
  uint64_t Promised(uint64_t reserved_bytes) const;

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
  std::mutex mutex_;
  uint64_t credit_ = 0;     // growth that needs no new look at the system; guarded by mutex_
  bool scarce_ = false;     // at the last look; guarded by mutex_
  std::vector<int> files_;  // guarded by mutex_
  Promises promises_;       // guarded by mutex_
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_MEMORY_BUDGET_H_
