#include "python/csrc/runtime/device.h"

#include <pthread.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <mutex>

#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/status.h"

namespace torch_openreg {
namespace detail {

std::atomic<bool> initialized{false};
std::atomic<std::ptrdiff_t> kernel_delta{0};

}  // namespace detail

namespace {

std::atomic<bool> bad_fork{false};

// In the child of a fork. Only atomics: the child has one thread and whatever locks the others had.
void after_fork_in_child() {
  if (detail::initialized.load(std::memory_order_relaxed)) {
    bad_fork.store(true, std::memory_order_relaxed);
    detail::initialized.store(false, std::memory_order_relaxed);
  }
}

}  // namespace

bool in_bad_fork() noexcept { return bad_fork.load(std::memory_order_relaxed); }

namespace detail {

void initialize_slow() {
  TORCH_CHECK(!in_bad_fork(),
              "Cannot re-initialize openreg in forked subprocess. To use openreg with "
              "multiprocessing, you must use the 'spawn' start method");
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  if (initialized.load(std::memory_order_relaxed)) {
    return;
  }
  std::ptrdiff_t delta = 0;
  OR_CHECK(orGetKernelDelta(&delta));
  orArenaInfo arena;
  OR_CHECK(orDeviceGetArena(current_device(), &arena));
  kernel_delta.store(delta, std::memory_order_relaxed);
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  TORCH_CHECK(registered == 0, "openreg: pthread_atfork failed with ", registered);
  torch::utils::register_fork_handler_for_device_init(c10::DeviceType::PrivateUse1);
  // torch asks its own flag before it empties the cache of pinned memory, and sets it itself only
  // where a tensor of the device is made.
  torch::utils::set_requires_device_init(c10::DeviceType::PrivateUse1, false);
  initialized.store(true, std::memory_order_release);
}

}  // namespace detail

c10::DeviceIndex device_count() noexcept {
  static std::atomic<int> cached{-1};
  int count = cached.load(std::memory_order_relaxed);
  if (count < 0) {
    if (orGetDeviceCount(&count) != orSuccess) {
      return 0;
    }
    cached.store(count, std::memory_order_relaxed);
  }
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  int device = 0;
  OR_CHECK(orGetDevice(&device));
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) { OR_CHECK(orSetDevice(device)); }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = current_device();
  if (device != previous) {
    set_device(device);
  }
  return previous;
}

c10::DeviceIndex resolve_device(int device) {
  if (device == -1) {
    return current_device();
  }
  const int count = device_count();
  if (device < 0 || device >= count) [[unlikely]] {
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        static_cast<int32_t>(orErrorInvalidDevice),
        c10::str("openreg error: invalid device ordinal: expected an index from 0 to ", count - 1,
                 ", got ", device));
  }
  return static_cast<c10::DeviceIndex>(device);
}

}  // namespace torch_openreg
