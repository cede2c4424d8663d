#include "python/csrc/runtime/profiler_events.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "python/csrc/runtime/blocking.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {
namespace {

using Event = torch::profiler::impl::ProfilerVoidEventStub;

orEvent_t handle_of(const Event& event) { return static_cast<orEvent_t>(event.get()); }

void wait_for(const Event& event) {
  OR_CHECK(wait_without_gil(-1, [&](std::int64_t slice_ms) {
    return orEventSynchronizeTimeout(handle_of(event), slice_ms);
  }));
}

[[noreturn]] void refuse_annotation() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "openreg has no tool of its own that takes ranges: use "
                              "torch.profiler, which shows what torch.openreg.nvtx marks.");
}

class Events final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, Event* event, std::int64_t* cpu_ns) const override {
    const OpenregStream stream = current_stream();
    if (device != nullptr) {
      *device = stream.device;
    }
    orEvent_t handle = nullptr;
    OR_CHECK(orEventCreate(&handle));
    *event =
        Event(handle, [](void* gone) { OR_WARN(orEventDestroy(static_cast<orEvent_t>(gone))); });
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    OR_CHECK(orEventRecord(handle, stream.handle));
  }

  // Microseconds.
  float elapsed(const Event* event, const Event* event2) const override {
    wait_for(*event);
    wait_for(*event2);
    float ms = 0;
    OR_CHECK(orEventElapsedTime(&ms, handle_of(*event), handle_of(*event2)));
    return ms * 1000;
  }

  void mark(const char* /*name*/) const override { refuse_annotation(); }
  void rangePush(const char* /*name*/) const override { refuse_annotation(); }
  void rangePop() const override { refuse_annotation(); }

  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> op) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      const DeviceScope scope(device);
      op(device);
    }
  }

  void synchronize() const override { synchronize_device(current_device()); }
};

}  // namespace

void register_profiler_events() {
  static Events events;
  torch::profiler::impl::registerPrivateUse1Methods(&events);
}

}  // namespace torch_openreg
