#include "python/csrc/c10d/event_pool.h"

#include <array>
#include <mutex>
#include <vector>

#include "python/csrc/runtime/device.h"

namespace torch_openreg {
namespace {

struct Pool {
  std::mutex mutex;
  std::vector<orEvent_t> events;
};

Pool& pool(c10::DeviceIndex device) {
  static auto* const pools = new std::array<Pool, kMaxDevices>;  // leaked: used at exit
  return pools->at(static_cast<std::size_t>(device));
}

orEvent_t take_event(c10::DeviceIndex device) {
  {
    Pool& unused = pool(device);
    const std::lock_guard<std::mutex> lock(unused.mutex);
    if (!unused.events.empty()) {
      orEvent_t const event = unused.events.back();
      unused.events.pop_back();
      return event;
    }
  }
  int current = 0;
  OR_CHECK(orGetDevice(&current));
  OR_CHECK(orSetDevice(device));
  orEvent_t event = nullptr;
  const orError_t made = orEventCreateWithFlags(&event, orEventDisableTiming);
  OR_WARN(orSetDevice(current));
  OR_CHECK(made);
  return event;
}

}  // namespace

orEvent_t record_event(const OpenregStream& stream) {
  orEvent_t const event = take_event(stream.device);
  const orError_t error = orEventRecord(event, stream.handle);
  if (error != orSuccess) {
    give_event_back(stream.device, event);
    OR_CHECK(error);
  }
  return event;
}

void give_event_back(c10::DeviceIndex device, orEvent_t event) noexcept {
  Pool& unused = pool(device);
  const std::lock_guard<std::mutex> lock(unused.mutex);
  unused.events.push_back(event);
}

bool is_busy(const OpenregStream& stream) {
  orEvent_t const event = record_event(stream);
  const bool busy = orEventQuery(event) == orErrorNotReady;
  give_event_back(stream.device, event);
  return busy;
}

void order_after(const OpenregStream& waiting, const OpenregStream& running) {
  if (waiting == running) {
    return;
  }
  if (query_stream(running)) {
    return;
  }
  orEvent_t const event = record_event(running);
  const orError_t error = orStreamWaitEvent(waiting.handle, event);
  give_event_back(running.device, event);
  OR_CHECK(error);
}

}  // namespace torch_openreg
