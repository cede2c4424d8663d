#include "python/csrc/runtime/event.h"

#include "python/csrc/runtime/blocking.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

thread_local orEvent_t prepared = nullptr;

}  // namespace

OpenregEvent::OpenregEvent(c10::DeviceIndex device, unsigned flags) : handle_(nullptr) {
  ensure_initialized();
  const DeviceScope scope(resolve_device(device));
  OR_CHECK(orEventCreateWithFlags(&handle_, flags));
}

OpenregEvent::~OpenregEvent() {
  if (handle_ != nullptr) {
    destroy_event(handle_);
  }
}

void OpenregEvent::record(const OpenregStream& stream) {
  OR_CHECK(orEventRecord(handle_, stream.handle));
  sanitizer::event_recorded(handle_, stream);
}

bool OpenregEvent::query() const { return query_event(handle_); }

void OpenregEvent::synchronize() const { synchronize_event(handle_); }

double OpenregEvent::elapsed_ms(const OpenregEvent& end) const {
  float ms = 0;
  OR_CHECK(orEventElapsedTime(&ms, handle_, end.handle_));
  return ms;
}

void prepare_event(OpenregEvent event) {
  if (prepared != nullptr) {
    destroy_event(prepared);
  }
  prepared = event.release();
}

orEvent_t take_prepared_event() noexcept { return std::exchange(prepared, nullptr); }

bool query_event(orEvent_t event) {
  const orError_t error = orEventQuery(event);
  if (error != orSuccess && error != orErrorNotReady) {
    throw_error(error, "orEventQuery");
  }
  return error == orSuccess;
}

void synchronize_event(orEvent_t event) {
  orError_t error = orEventSynchronizeTimeout(event, 0);
  if (error == orErrorTimeout) {
    error = wait_without_gil(
        -1, [&](std::int64_t slice_ms) { return orEventSynchronizeTimeout(event, slice_ms); });
  }
  sanitizer::host_saw_event(event);
  reap_finished();
  if (error != orSuccess) {
    throw_unless_forgotten(error, "orEventSynchronize");
  }
}

void destroy_event(orEvent_t event) noexcept {
  if (!in_bad_fork()) {
    sanitizer::event_destroyed(event);
    OR_WARN(orEventDestroy(event));
  }
}

}  // namespace torch_openreg
