// What the runtime tells the sanitizer: events, streams, the host, memory.
#ifndef PYTHON_CSRC_SANITIZER_ORDER_H_
#define PYTHON_CSRC_SANITIZER_ORDER_H_

#include <c10/core/Stream.h>

#include <cstddef>

#include "openreg/api/openreg.h"
#include "python/csrc/sanitizer/switch.h"

namespace torch_openreg::sanitizer {

namespace detail {
void event_recorded(orEvent_t event, const c10::Stream& stream);
void event_destroyed(orEvent_t event) noexcept;
void stream_waits(const c10::Stream& stream, orEvent_t event);
void stream_follows(const c10::Stream& second, const c10::Stream& first);
void host_saw_event(orEvent_t event);
void host_saw_stream(const c10::Stream& stream);
void host_saw_device(int device);
void allocated(const void* ptr, std::size_t bytes, const c10::Stream& stream);
void freed(const void* ptr) noexcept;
void stream_recorded(const void* ptr, const c10::Stream& stream);
void host_memory_freed(const void* ptr, std::size_t bytes) noexcept;
void raw_copy(const char* name, const c10::Stream& stream, const void* to, const void* from,
              std::size_t bytes);
}  // namespace detail

// ---- order: events, streams, the host
inline void event_recorded(orEvent_t event, const c10::Stream& stream) {
  if (enabled()) [[unlikely]] {
    detail::event_recorded(event, stream);
  }
}
inline void event_destroyed(orEvent_t event) noexcept {
  if (enabled()) [[unlikely]] {
    detail::event_destroyed(event);
  }
}
inline void stream_waits(const c10::Stream& stream, orEvent_t event) {
  if (enabled()) [[unlikely]] {
    detail::stream_waits(stream, event);
  }
}
// What is issued on `second` from now on comes after what was issued on `first`.
inline void stream_follows(const c10::Stream& second, const c10::Stream& first) {
  if (enabled()) [[unlikely]] {
    detail::stream_follows(second, first);
  }
}
// The host has seen that the event is complete, the stream empty, the device idle. Not called
// where this device has to wait and a real one would not (StreamHold).
inline void host_saw_event(orEvent_t event) {
  if (enabled()) [[unlikely]] {
    detail::host_saw_event(event);
  }
}
inline void host_saw_stream(const c10::Stream& stream) {
  if (enabled()) [[unlikely]] {
    detail::host_saw_stream(stream);
  }
}
inline void host_saw_device(int device) {
  if (enabled()) [[unlikely]] {
    detail::host_saw_device(device);
  }
}

// ---- memory
inline void allocated(const void* ptr, std::size_t bytes, const c10::Stream& stream) {
  if (enabled()) [[unlikely]] {
    detail::allocated(ptr, bytes, stream);
  }
}
// Before the allocator gets it back.
inline void freed(const void* ptr) noexcept {
  if (enabled()) [[unlikely]] {
    detail::freed(ptr);
  }
}
inline void stream_recorded(const void* ptr, const c10::Stream& stream) {
  if (enabled()) [[unlikely]] {
    detail::stream_recorded(ptr, stream);
  }
}
// Pinned memory that its last owner has dropped.
inline void host_memory_freed(const void* ptr, std::size_t bytes) noexcept {
  if (enabled()) [[unlikely]] {
    detail::host_memory_freed(ptr, bytes);
  }
}
// Bytes that move without a tensor (a storage that grows, c10's raw copies).
inline void raw_copy(const char* name, const c10::Stream& stream, const void* to, const void* from,
                     std::size_t bytes) {
  if (enabled()) [[unlikely]] {
    detail::raw_copy(name, stream, to, from, bytes);
  }
}

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ORDER_H_
