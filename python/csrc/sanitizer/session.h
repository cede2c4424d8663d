// The sanitizer of this process, and how tensors and streams look to it.
#ifndef PYTHON_CSRC_SANITIZER_SESSION_H_
#define PYTHON_CSRC_SANITIZER_SESSION_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "python/csrc/sanitizer/engine/engine.h"
#include "python/csrc/sanitizer/places.h"
#include "python/csrc/sanitizer/work.h"

namespace torch_openreg::sanitizer {

// Kept for ever.
Engine& engine();

inline Address address(const void* ptr) { return reinterpret_cast<Address>(ptr); }
inline Engine::Handle key(const void* handle) { return reinterpret_cast<Engine::Handle>(handle); }
// A stream's device and torch's number of it.
constexpr int kDeviceShift = 40;
inline Engine::Handle key(const c10::Stream& stream) {
  return (static_cast<Engine::Handle>(stream.device_index()) << kDeviceShift) |
         static_cast<Engine::Handle>(stream.id());
}
// What stands for the stream of messages that are in order with each other.
constexpr Engine::Handle kChannelBit = Engine::Handle{1} << 62;
inline Engine::Handle channel_key(int device, std::uint64_t channel) {
  return kChannelBit | (static_cast<Engine::Handle>(device) << kDeviceShift) |
         (channel & ((Engine::Handle{1} << kDeviceShift) - 1));
}
inline bool is_channel(Engine::Handle stream) { return (stream & kChannelBit) != 0; }
inline int device_of(Engine::Handle stream) {
  return static_cast<int>((stream & ~kChannelBit) >> kDeviceShift);
}
inline std::int64_t id_of(Engine::Handle stream) {
  return static_cast<std::int64_t>(stream & ((Engine::Handle{1} << kDeviceShift) - 1));
}

// The bytes of a dense tensor of openreg, or of the host's pinned memory. False for others, and
// where there are no bytes.
bool describe_access(const at::Tensor& tensor, Access* access);

struct Work {
  std::shared_ptr<const Operation> operation;
  AccessPtr tensor;  // one of its tensors; without a region if it has none (a barrier)
  Engine::Snapshot end;
  bool asynchronous = false;
  std::atomic<bool> awaited{false};
  std::atomic<bool> ended{false};
};
// Keeps the work until its group is asked for.
void remember(const WorkPtr& work);
// What of a group nobody has waited for, or has not ended, as findings. Forgets the group's works.
std::vector<Finding> remaining_works(const std::string& group);

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_SESSION_H_
