// Events, with the flags that c10::Event has no room for.
#ifndef PYTHON_CSRC_RUNTIME_EVENT_H_
#define PYTHON_CSRC_RUNTIME_EVENT_H_

#include <c10/core/Device.h>

#include <utility>

#include "openreg/api/openreg.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// An orEvent_t that is destroyed with its owner. Movable.
class OpenregEvent {
 public:
  // On `device`; flags of orEventCreateWithFlags.
  OpenregEvent(c10::DeviceIndex device, unsigned flags);
  explicit OpenregEvent(orEvent_t adopted) : handle_(adopted) {}
  ~OpenregEvent();
  OpenregEvent(OpenregEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  OpenregEvent& operator=(OpenregEvent&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  orEvent_t handle() const { return handle_; }
  orEvent_t release() { return std::exchange(handle_, nullptr); }

  void record(const OpenregStream& stream);
  // True if the last record is complete, or there was none.
  bool query() const;
  // Waits without the interpreter lock.
  void synchronize() const;
  // Milliseconds. Both must have timing and be complete.
  double elapsed_ms(const OpenregEvent& end) const;

 private:
  orEvent_t handle_;
};

// c10::Event makes its backend's event at its first record and passes on whether it takes time,
// nothing else. An event that sleeps while it waits, or is shared between processes, is made first
// and handed over: the next record() of this thread through torch adopts it *instead of* recording.
void prepare_event(OpenregEvent event);
// The event prepared by this thread, or nullptr. Used by the device guard only.
orEvent_t take_prepared_event() noexcept;

bool query_event(orEvent_t event);
void synchronize_event(orEvent_t event);
void destroy_event(orEvent_t event) noexcept;

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_EVENT_H_
