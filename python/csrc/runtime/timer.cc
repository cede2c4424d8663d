#include "python/csrc/runtime/timer.h"

#include <c10/core/DeviceGuard.h>

#include <array>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "python/csrc/runtime/event.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {
namespace {

// Each phase is an event on the current stream, so that what is measured is the device's time.
class OpenregTimer final : public c10d::Timer {
 public:
  explicit OpenregTimer(c10::Device device) : device_(device.index()) {}

  void record(Event event) override {
    Timer::record(event);
    std::optional<OpenregEvent>& slot = slot_of(event);
    if (!slot.has_value()) {
      slot.emplace(device_, orEventDefault);
    }
    slot->record(current_stream(device_));
  }

  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    const std::optional<OpenregEvent>& from = slot_of(start);
    const std::optional<OpenregEvent>& to = slot_of(end);
    // A phase may not have been reached, or be an older iteration's: no measurement.
    if (!from.has_value() || !to.has_value() || getTimeRef(end) < getTimeRef(start)) {
      return std::nullopt;
    }
    from->synchronize();
    to->synchronize();
    const double ms = from->elapsed_ms(*to);
    return ms < 0 ? std::nullopt : std::optional(static_cast<std::int64_t>(ms * 1e6));
  }

 private:
  std::optional<OpenregEvent>& slot_of(Event event) {
    return slots_[static_cast<std::size_t>(event)];
  }

  const c10::DeviceIndex device_;
  std::array<std::optional<OpenregEvent>, 5> slots_;
};

}  // namespace

void register_timer() {
  c10d::TimerRegistry()->Register(c10::DeviceType::PrivateUse1,
                                  [](c10::Device device) -> std::unique_ptr<c10d::Timer> {
                                    return std::make_unique<OpenregTimer>(device);
                                  });
}

}  // namespace torch_openreg
