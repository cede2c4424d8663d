// Pinned host memory: what orHostAlloc gave out and what orHostRegister was told of.
#ifndef OPENREG_RUNTIME_HOST_MEMORY_H_
#define OPENREG_RUNTIME_HOST_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <shared_mutex>
#include <vector>

#include "openreg/runtime/status.h"
#include "openreg/runtime/stream_clock.h"

namespace openreg {

struct HostRange {
  char* base = nullptr;
  size_t size = 0;
};

class HostMemory {
 public:
  // `busy_streams` appends the positions of all streams that are not idle.
  explicit HostMemory(std::function<void(std::vector<Position>*)> busy_streams)
      : busy_streams_(std::move(busy_streams)) {}

  // Errors: orErrorMemoryAllocation.
  Status Allocate(size_t size, void** ptr);
  // The memory goes when what is queued on streams now has ended (copies may be under way); does
  // not block. Errors: orErrorInvalidValue (not from Allocate).
  Status Free(void* ptr);
  Status Register(void* ptr, size_t size);
  Status Unregister(void* ptr);

  // The pinned range that contains ptr. Costs one relaxed load while there is none.
  bool Find(const void* ptr, HostRange* range) const;

 private:
  struct Entry {
    size_t size;
    bool owned;
  };
  struct PendingFree {
    void* ptr;
    std::vector<Position> positions;
  };
  Status Insert(void* ptr, size_t size, bool owned);
  Status Remove(void* ptr, bool owned, const char* action);
  void FreePassed(PendingFree* fresh);

  const std::function<void(std::vector<Position>*)> busy_streams_;
  mutable std::shared_mutex mutex_;  // guards ranges_ and pending_
  std::map<char*, Entry> ranges_;
  std::vector<PendingFree> pending_;
  std::atomic<size_t> count_{0};
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_HOST_MEMORY_H_
