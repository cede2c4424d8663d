#include "python/csrc/runtime/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/event.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

class OpenregGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kOpenreg; }

  // Devices.
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kOpenreg, exchange_device(device.index())};
  }
  c10::Device getDevice() const override { return {kOpenreg, current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.index() != current_device()) {
      set_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    OR_WARN(orSetDevice(device.index()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    // What the CPU copies and converts: neither quantized nor sub-byte nor opaque types.
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& has = capability.capability_data.supported_scalar_types;
    has.has_Bool = has.has_Byte = has.has_Char = has.has_Short = has.has_Int = has.has_Long = 1;
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    has.has_Half = has.has_BFloat16 = has.has_Float = has.has_Double = 1;
    has.has_Float8_e5m2 = has.has_Float8_e4m3fn = has.has_Float8_e5m2fnuz = 1;
    has.has_Float8_e4m3fnuz = has.has_Float8_e8m0fnu = 1;
    has.has_ComplexHalf = has.has_ComplexFloat = has.has_ComplexDouble = 1;
    return capability;
  }

  // Streams.
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_from_pool(high_priority ? -1 : 0, device.index());
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(priority, device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const OpenregStream next = OpenregStream::from(stream);
    const OpenregStream previous = current_stream(next.device);
    set_current_stream(next);
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return OpenregStream::from(stream).handle;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const bool empty = query_stream(OpenregStream::from(stream));
    if (empty) {
      sanitizer::host_saw_stream(stream);
    }
    return empty;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(OpenregStream::from(stream));
  }
  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    device_allocator()->recordStream(ptr, stream);
  }

  // Events: the void* is the orEvent_t.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device_index,
              const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = take_prepared_event();
      if (*event != nullptr) {
        return;
      }
    }
    const OpenregStream on = OpenregStream::from(stream);
    TORCH_CHECK(device_index == -1 || device_index == on.device, "Event device index ",
                static_cast<int>(device_index), " does not match recording stream's device index ",
                static_cast<int>(on.device), ".");
    if (*event == nullptr) {
      const unsigned flags =
          flag == c10::EventFlag::BACKEND_DEFAULT ? orEventDefault : orEventDisableTiming;
      *event = OpenregEvent(on.device, flags).release();
    }
    OR_CHECK(orEventRecord(static_cast<orEvent_t>(*event), on.handle));
    sanitizer::event_recorded(static_cast<orEvent_t>(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      OR_CHECK(
          orStreamWaitEvent(OpenregStream::from(stream).handle, static_cast<orEvent_t>(event)));
      sanitizer::stream_waits(stream, static_cast<orEvent_t>(event));
    }
  }
  bool queryEvent(void* event) const override {
    const bool complete = event == nullptr || query_event(static_cast<orEvent_t>(event));
    if (complete && event != nullptr) {
      // Here and not in query_event, which pinned memory's allocator calls when it likes.
      sanitizer::host_saw_event(static_cast<orEvent_t>(event));
    }
    return complete;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      synchronize_event(static_cast<orEvent_t>(event));
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      destroy_event(static_cast<orEvent_t>(event));
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    float ms = 0;
    OR_CHECK(orEventElapsedTime(&ms, static_cast<orEvent_t>(start), static_cast<orEvent_t>(end)));
    return ms;
  }
};

}  // namespace

void register_guard() {
  static const OpenregGuard* guard = new OpenregGuard;
  c10::impl::registerDeviceGuard(kOpenreg, guard);
}

}  // namespace torch_openreg
