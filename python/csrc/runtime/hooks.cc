#include "python/csrc/runtime/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/generator.h"
#include "python/csrc/runtime/host_memory.h"
#include "python/csrc/runtime/memory.h"

namespace torch_openreg {
namespace {

struct OpenregHooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  void init() const override { ensure_initialized(); }

  // Devices are told apart by index only, and all come to life together.
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return is_initialized() && device >= 0 && device < device_count();
  }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? c10::DeviceIndex{-1} : exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    // "maybe": without creating a context; switching never creates one here.
    return exchangeDevice(device);
  }

  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned_ptr(data); }
  at::Device getDeviceFromPtr(void* data) const override { return device_of_ptr(data); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t nbytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace

void register_hooks() {
  static auto* hooks = new OpenregHooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace torch_openreg
