#include "occl/core/quarantine.h"

#include <algorithm>
#include <atomic>

#include "occl/base/fence.h"
#include "openreg/api/openreg.h"

namespace occl {

bool Quarantine::IsOver(uint64_t round) {
  FullFence();
  bool over = true;
  peers_.Refresh();
  for (int r = 0; r < segment_.nranks(); ++r) {
    if (segment_.round(r, round).round.load(std::memory_order_acquire) < round) return true;
    const RankBlock& block = segment_.rank(r);
    const bool out = r == rank_ || block.done.load(std::memory_order_acquire) >= round ||
                     block.quit.load(std::memory_order_acquire) != 0 || peers_.Ended(r);
    over = over && out;
  }
  return over;
}

void Quarantine::Take(void* device_pointer, uint64_t round) {
  if (IsOver(round)) return;
  // Fails only if the caller has freed the buffer of a running operation: too late to help.
  if (orMemRetain(device_pointer) != orSuccess) return;
  std::lock_guard<std::mutex> lock(mutex_);
  held_.push_back({device_pointer, round});
}

void Quarantine::Sweep() {
  const auto over = [this](const Buffer& buffer) {
    if (!IsOver(buffer.round)) return false;
    static_cast<void>(orMemRelease(buffer.device_pointer));
    return true;
  };
  held_.erase(std::remove_if(held_.begin(), held_.end(), over), held_.end());
}

size_t Quarantine::Drain(const Deadline& deadline) {
  constexpr int64_t kSlice_ns = 50'000'000;
  std::lock_guard<std::mutex> lock(mutex_);
  while (!held_.empty()) {
    const uint32_t rings = bells_.Announce();
    Sweep();
    const bool stop = held_.empty() || deadline.Passed();
    if (!stop) bells_.Sleep(rings, std::min(deadline.RemainingNs(), kSlice_ns));
    bells_.Leave();
    if (stop) break;
  }
  return held_.size();
}

}  // namespace occl
