#include "python/csrc/aten/allocation_switch.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "python/csrc/runtime/memory.h"

namespace torch_openreg {

namespace detail {
constinit thread_local c10::DeviceIndex allocation_target = -1;
}  // namespace detail

namespace {

// Frees what AllocationSwitch took: the context is the kernel address.
void free_switched(void* kernel_address) {
  device_allocator()->raw_deleter()(device_ptr(kernel_address));
}

class SwitchingAllocator final : public c10::Allocator {
 public:
  explicit SwitchingAllocator(c10::Allocator* host) : host_(host) {}

  c10::DataPtr allocate(std::size_t n) override {
    const c10::DeviceIndex target = detail::allocation_target;
    if (target < 0) [[likely]] {
      return host_->allocate(n);
    }
    c10::DataPtr device = torch_openreg::allocate(n, target);
    void* address = kernel_ptr(device.release_context());
    return {address, address, &free_switched, c10::Device(c10::DeviceType::CPU)};
  }

  bool is_simple_data_ptr(const c10::DataPtr& ptr) const override {
    return is_switched_allocation(ptr) || host_->is_simple_data_ptr(ptr);
  }

  // Raw memory may have come from either side, so its deleter tells by the address.
  c10::DeleterFnPtr raw_deleter() const override {
    return host_->raw_deleter() == nullptr ? nullptr : &raw_delete;
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  static SwitchingAllocator*& instance() {
    static SwitchingAllocator* allocator = nullptr;
    return allocator;
  }

 private:
  static void raw_delete(void* ptr) {
    if (is_device_ptr(device_ptr(ptr))) {
      free_switched(ptr);
    } else {
      instance()->host_->raw_deleter()(ptr);
    }
  }

  c10::Allocator* host_;
};

// Above torch's own (0), below what wants to have the last word.
constexpr std::uint8_t kPriority = 100;

}  // namespace

void install_allocation_switch() {
  SwitchingAllocator*& instance = SwitchingAllocator::instance();
  if (instance != nullptr) {
    return;
  }
  // Never destroyed: storages that outlive everything else point to it.
  instance = new SwitchingAllocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(instance, kPriority);
  TORCH_CHECK(c10::GetCPUAllocator() == instance,
              "torch_openreg could not replace torch's CPU allocator: another extension has "
              "registered one with a priority above ",
              static_cast<int>(kPriority), ".");
}

c10::Allocator* switching_allocator() { return SwitchingAllocator::instance(); }

bool is_switched_allocation(const c10::DataPtr& ptr) { return ptr.get_deleter() == &free_switched; }

c10::DataPtr to_device_form(c10::DataPtr&& ptr, c10::Device device) {
  void* address = device_ptr(ptr.release_context());
  return {address, address, device_allocator()->raw_deleter(), device};
}

}  // namespace torch_openreg
