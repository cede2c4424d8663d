// The devices as torch counts them, and the moment at which the device comes to life.
#ifndef PYTHON_CSRC_RUNTIME_DEVICE_H_
#define PYTHON_CSRC_RUNTIME_DEVICE_H_

#include <c10/core/Device.h>

#include <atomic>

#include "openreg/api/openreg.h"

namespace torch_openreg {

// torch's name for the device type that openreg takes ("openreg" once it is renamed).
inline constexpr c10::DeviceType kOpenreg = c10::DeviceType::PrivateUse1;

// Upper bound of OPENREG_DEVICE_COUNT: tables indexed by device have this many rows.
inline constexpr int kMaxDevices = 64;

// Number of devices, 0 if the runtime cannot tell. Does not bring the device to life, works after
// fork, never throws.
c10::DeviceIndex device_count() noexcept;

// The calling thread's current device (0 if never set). A few nanoseconds.
c10::DeviceIndex current_device();
// Throws torch.AcceleratorError ("invalid device ordinal ...") for an index that does not exist.
void set_device(c10::DeviceIndex device);
// Sets the device and returns the one before.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// -1 becomes the current device; an index that does not exist throws (torch.AcceleratorError).
c10::DeviceIndex resolve_device(int device);

// Makes `device` current for the life of the object.
class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) : previous_(exchange_device(device)) {}
  ~DeviceScope() { (void)orSetDevice(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

namespace detail {
extern std::atomic<bool> initialized;
void initialize_slow();
}  // namespace detail

// Brings the device to life in this process (arenas, kernel_delta). Cheap after the first time.
// Throws in a forked child of a process that had used the device.
inline void ensure_initialized() {
  if (!detail::initialized.load(std::memory_order_acquire)) [[unlikely]] {
    detail::initialize_slow();
  }
}
inline bool is_initialized() { return detail::initialized.load(std::memory_order_acquire); }

// True in a forked child of a process that had used the device.
bool in_bad_fork() noexcept;

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_DEVICE_H_
