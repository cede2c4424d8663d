#include "openreg/runtime/memory_budget.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "openreg/runtime/config.h"

namespace openreg {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

// Left to the host's side of all programs, which get no error but the kernel's killer.
uint64_t HostBytes() {
  return std::clamp(SystemMemoryBytes() / 32, 16 * kMegabyte, 128 * kMegabyte);
}
// Growth without a new look at the system. Others are not shown it: where it counts, little is left
// and there is none; it is small so that that holds though several processes have some.
constexpr uint64_t kMostCredit = 64 * kMegabyte;
// Little enough for the devices of several processes to reach the end together.
uint64_t ScarceBytes() { return std::min(SystemMemoryBytes() / 4, 1024 * kMegabyte); }

}  // namespace

bool MemoryBudget::Reserve(uint64_t bytes, bool* scarce) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  if (SystemHas(bytes, scarce)) return true;
  Release(bytes);
  return false;
}

void MemoryBudget::Release(uint64_t bytes) {
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex_);
  promises_.Show(used());
}

// What is left of it besides `bytes` that are about to be counted; false: they are not. First
// shown, then looked: of two processes that do so at once, one sees the other at least. Both may,
// and one that will be refused: so it is asked again, a different moment later in each process, and
// meanwhile others of this one count and give back.
bool MemoryBudget::AskSystem(uint64_t bytes, std::unique_lock<std::mutex>* lock, uint64_t* left) {
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) {
      promises_.Show(used() - bytes);
      lock->unlock();
      usleep(10'000u + 1'000u * static_cast<unsigned>(getpid() % 20));
      lock->lock();
    }
    promises_.Show(used());
    const std::vector<Promise> promises = promises_.OfOthers();
    static const uint64_t host_bytes = HostBytes();
    const uint64_t needed = Promised(used() - bytes) + host_bytes + bytes;
    const uint64_t available = SystemAvailableBytes(promises);
    if (available >= needed) {
      *left = available - needed;
      return true;
    }
    if (promises.empty() || SystemAvailableBytes() < needed) break;
  }
  return false;
}

bool MemoryBudget::SystemHas(uint64_t bytes, bool* scarce) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (credit_ < bytes) {
    static const uint64_t scarce_bytes = ScarceBytes();
    uint64_t left = 0;
    credit_ = 0;
    if (!AskSystem(bytes, &lock, &left)) return false;
    scarce_ = left < scarce_bytes;
    // Other processes take memory too: look again after a small part of it.
    credit_ = scarce_ ? 0 : std::min(left / 32, kMostCredit);
  } else {
    promises_.Show(used());
    credit_ -= bytes;
  }
  if (scarce != nullptr) *scarce = scarce_;
  return true;
}

void MemoryBudget::AddFile(int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  files_.push_back(fd);
}

uint64_t MemoryBudget::Promised(uint64_t reserved_bytes) const {
  uint64_t touched_bytes = 0;
  for (int fd : files_) {
    struct stat info;
    if (fstat(fd, &info) == 0) touched_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return reserved_bytes - std::min(reserved_bytes, touched_bytes);
}

}  // namespace openreg
