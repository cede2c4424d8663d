// Sends the CPU allocator's allocations of the calling thread to a device's memory while a CPU
// kernel computes an openreg operator: its outputs are born in device memory.
#ifndef PYTHON_CSRC_ATEN_ALLOCATION_SWITCH_H_
#define PYTHON_CSRC_ATEN_ALLOCATION_SWITCH_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <utility>

namespace torch_openreg {

namespace detail {
// The device that the thread's CPU allocations go to, -1: the host, as always.
extern constinit thread_local c10::DeviceIndex allocation_target;
}  // namespace detail

// Puts the switching allocator in the place of torch's CPU allocator, which it forwards to
// wherever the switch is off. Called once, when the extension is loaded.
void install_allocation_switch();

// The allocator that is now torch's CPU allocator. Valid after install_allocation_switch().
c10::Allocator* switching_allocator();

// True if `ptr` is memory that the switch took from a device: the kernel address of an allocation,
// to be freed as such.
bool is_switched_allocation(const c10::DataPtr& ptr);

// The same allocation as a DataPtr of the device, with the address that faults on the host.
// `ptr` must satisfy is_switched_allocation, and gives its ownership away.
c10::DataPtr to_device_form(c10::DataPtr&& ptr, c10::Device device);

// While it lives, the thread's CPU allocations come from `device`; -1 switches to the host (for
// code that is not a kernel of ours: Python, callbacks). Nests.
class AllocationSwitch {
 public:
  explicit AllocationSwitch(c10::DeviceIndex device)
      : previous_(std::exchange(detail::allocation_target, device)) {}
  ~AllocationSwitch() { detail::allocation_target = previous_; }
  AllocationSwitch(const AllocationSwitch&) = delete;
  AllocationSwitch& operator=(const AllocationSwitch&) = delete;

 private:
  c10::DeviceIndex previous_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_ALLOCATION_SWITCH_H_
