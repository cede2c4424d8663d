#include "openreg/runtime/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace openreg {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kCacheLine = 64;
}  // namespace

Status HostMemory::Allocate(size_t size, void** ptr) {
  FreePassed(nullptr);
  void* memory = nullptr;
  if (posix_memalign(&memory, size >= kPage ? kPage : kCacheLine, size) != 0) {
    return Status(orErrorMemoryAllocation,
                  Format("the system has no %zu bytes of host memory", size));
  }
  Status status = Insert(memory, size, /*owned=*/true);
  if (!status.ok()) {
    std::free(memory);
    return status;
  }
  *ptr = memory;
  return Status();
}

Status HostMemory::Free(void* ptr) {
  OPENREG_RETURN_IF_ERROR(Remove(ptr, /*owned=*/true, "orHostFree"));
  PendingFree pending{ptr, {}};
  busy_streams_(&pending.positions);
  FreePassed(&pending);
  return Status();
}

void HostMemory::FreePassed(PendingFree* fresh) {
  std::vector<void*> passed;
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (fresh != nullptr) pending_.push_back(std::move(*fresh));
    auto keep = std::partition(pending_.begin(), pending_.end(), [](const PendingFree& pending) {
      return !AllPassed(pending.positions);
    });
    for (auto it = keep; it != pending_.end(); ++it) passed.push_back(it->ptr);
    pending_.erase(keep, pending_.end());
  }
  for (void* memory : passed) std::free(memory);
}

Status HostMemory::Register(void* ptr, size_t size) { return Insert(ptr, size, /*owned=*/false); }
Status HostMemory::Unregister(void* ptr) {
  return Remove(ptr, /*owned=*/false, "orHostUnregister");
}

Status HostMemory::Insert(void* ptr, size_t size, bool owned) {
  char* begin = static_cast<char*>(ptr);
  std::unique_lock<std::shared_mutex> lock(mutex_);
  auto next = ranges_.lower_bound(begin);
  bool overlaps = next != ranges_.end() && next->first < begin + size;
  if (next != ranges_.begin()) {
    auto previous = std::prev(next);
    overlaps = overlaps || previous->first + previous->second.size > begin;
  }
  if (overlaps) {
    return InvalidValue(Format("host memory %p, %zu bytes: overlaps a pinned range", ptr, size));
  }
  ranges_.emplace_hint(next, begin, Entry{size, owned});
  count_.store(ranges_.size(), std::memory_order_release);
  return Status();
}

Status HostMemory::Remove(void* ptr, bool owned, const char* action) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  auto it = ranges_.find(static_cast<char*>(ptr));
  if (it == ranges_.end() || it->second.owned != owned) {
    return InvalidValue(Format("%s: expected an address from %s, got %p", action,
                               owned ? "orHostAlloc" : "orHostRegister", ptr));
  }
  ranges_.erase(it);
  count_.store(ranges_.size(), std::memory_order_release);
  return Status();
}

bool HostMemory::Find(const void* ptr, HostRange* range) const {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  char* at = static_cast<char*>(const_cast<void*>(ptr));
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return false;
  auto it = std::prev(next);
  if (static_cast<size_t>(at - it->first) >= it->second.size) return false;
  *range = {it->first, it->second.size};
  return true;
}

}  // namespace openreg
