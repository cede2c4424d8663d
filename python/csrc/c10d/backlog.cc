#include "python/csrc/c10d/backlog.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <limits>
#include <thread>

#include "openreg/api/openreg.h"
#include "python/csrc/c10d/errors.h"

namespace torch_openreg {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostOperations = 1024;
constexpr std::int64_t kMostBytes = 256 << 20;
constexpr std::int64_t kPartOfMemory = 16;
constexpr std::chrono::microseconds kBetweenLooks{500};
constexpr std::chrono::seconds kStalled{5};
constexpr int kMostDoublings = 20;

std::atomic<std::int64_t> operations{0};  // that run
std::atomic<std::int64_t> bytes{0};       // that they hold
std::atomic<std::uint64_t> ended{0};
// How often the bounds have doubled since the backlog was last within them.
std::atomic<int> doublings{0};

std::int64_t most_bytes() {
  static const std::int64_t most = [] {
    std::size_t free = 0;
    std::size_t total = 0;
    return orMemGetInfo(&free, &total) == orSuccess
               ? std::min(kMostBytes, static_cast<std::int64_t>(total) / kPartOfMemory)
               : kMostBytes;
  }();
  return most;
}

bool is_longer_than(int doubled) {
  return operations.load(std::memory_order_relaxed) >= kMostOperations << doubled ||
         bytes.load(std::memory_order_relaxed) > most_bytes() << doubled;
}

bool is_long() { return is_longer_than(doublings.load(std::memory_order_relaxed)); }

}  // namespace

BacklogShare::BacklogShare(c10::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    bytes_ += static_cast<std::int64_t>(tensor.nbytes());
  }
  operations.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

void BacklogShare::end() {
  if (bytes_ < 0) {
    return;
  }
  operations.fetch_sub(1, std::memory_order_relaxed);
  bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  ended.fetch_add(1, std::memory_order_relaxed);
  bytes_ = -1;
}

void await_backlog() {
  if (!is_longer_than(0)) [[likely]] {
    doublings.store(0, std::memory_order_relaxed);
    return;
  }
  const GilReleaseForWait no_gil;
  auto next_look = Clock::now() + kSignalInterval;
  auto stalled = Clock::now() + kStalled;
  std::uint64_t seen = ended.load(std::memory_order_relaxed);
  while (is_long()) {
    std::this_thread::sleep_for(kBetweenLooks);
    const auto now = Clock::now();
    if (const std::uint64_t now_ended = ended.load(std::memory_order_relaxed); now_ended != seen) {
      seen = now_ended;
      stalled = now + kStalled;
    } else if (now >= stalled) {
      const int doubled = doublings.load(std::memory_order_relaxed);
      doublings.store(std::min(doubled + 1, kMostDoublings), std::memory_order_relaxed);
      return;
    }
    if (now >= next_look) {
      check_signals();
      next_look = now + kSignalInterval;
    }
  }
}

}  // namespace torch_openreg
