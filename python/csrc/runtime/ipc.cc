#include "python/csrc/runtime/ipc.h"

#include <cstring>

#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {
namespace {

void close_import(void* base) {
  if (!in_bad_fork()) {
    OR_WARN(orIpcCloseMemHandle(base));
  }
}

// A stream for one hand-over; what is queued on it runs after its end, too.
class OwnStream {
 public:
  explicit OwnStream(c10::DeviceIndex device) {
    const DeviceScope scope(device);
    OR_CHECK(orStreamCreate(&handle_));
  }
  ~OwnStream() { OR_WARN(orStreamDestroy(handle_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  orStream_t handle() const { return handle_; }

 private:
  orStream_t handle_ = nullptr;
};

}  // namespace

SharedStorage share_storage(const c10::Storage& storage) {
  TORCH_CHECK(storage.device_type() == c10::DeviceType::PrivateUse1,
              "expected a storage of openreg, got one of ", storage.device());
  SharedStorage shared;
  shared.device = storage.device().index();
  shared.size_bytes = static_cast<std::int64_t>(storage.nbytes());
  void* ptr = storage.mutable_data();
  if (ptr == nullptr) {
    return shared;
  }
  orPointerAttributes attributes;
  OR_CHECK(orPointerGetAttributes(&attributes, ptr));
  TORCH_CHECK(attributes.imported == 0,
              "this openreg storage came from another process: only its owner can share it "
              "(clone it to share it further)");
  orIpcMemHandle_t handle;
  OR_CHECK(orIpcGetMemHandle(&handle, ptr));
  shared.handle.assign(reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved));
  shared.offset_bytes = static_cast<const char*>(ptr) - static_cast<const char*>(attributes.base);
  return shared;
}

std::optional<OpenregEvent> capture_device(c10::DeviceIndex device) {
  // Not a stream of the pool: what its user queues there later would wait, too.
  std::optional<OwnStream> behind;
  OpenregEvent captured(device, orEventDisableTiming);
  for (const OpenregStream& stream : known_streams(device)) {
    // An external stream may have been destroyed: then there is nothing to wait for.
    if (orEventRecord(captured.handle(), stream.handle) == orSuccess && !captured.query()) {
      if (!behind.has_value()) {
        behind.emplace(device);
      }
      OR_CHECK(orStreamWaitEvent(behind->handle(), captured.handle()));
    }
  }
  if (!behind.has_value()) {
    return std::nullopt;
  }
  OpenregEvent all(device, orEventDisableTiming | orEventInterprocess);
  OR_CHECK(orEventRecord(all.handle(), behind->handle()));
  return all;
}

std::string event_handle(const OpenregEvent& event) {
  orIpcEventHandle_t handle;
  OR_CHECK(orIpcGetEventHandle(&handle, event.handle()));
  return {reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved)};
}

OpenregEvent open_event(const std::string& bytes) {
  orIpcEventHandle_t handle;
  TORCH_CHECK_VALUE(bytes.size() == sizeof(handle.reserved), "expected an event handle of ",
                    sizeof(handle.reserved), " bytes, got ", bytes.size());
  std::memcpy(handle.reserved, bytes.data(), sizeof(handle.reserved));
  ensure_initialized();
  orEvent_t event = nullptr;
  OR_CHECK(orIpcOpenEventHandle(&event, &handle));
  return OpenregEvent(event);
}

c10::Storage open_storage(const SharedStorage& shared) {
  ensure_initialized();
  const c10::Device device(c10::DeviceType::PrivateUse1, resolve_device(shared.device));
  const auto nbytes = static_cast<std::size_t>(shared.size_bytes);
  TORCH_CHECK(shared.offset_bytes >= 0 && shared.size_bytes >= 0,
              "openreg IPC: negative offset or size (", shared.offset_bytes, ", ",
              shared.size_bytes, ")");
  c10::DataPtr data(nullptr, device);
  if (!shared.handle.empty()) {
    orIpcMemHandle_t handle;
    TORCH_CHECK(shared.handle.size() == sizeof(handle.reserved),
                "openreg IPC: expected a handle of ", sizeof(handle.reserved), " bytes, got ",
                shared.handle.size());
    std::memcpy(handle.reserved, shared.handle.data(), sizeof(handle.reserved));
    void* base = nullptr;
    OR_CHECK(orIpcOpenMemHandle(&base, &handle));
    data = {static_cast<char*>(base) + shared.offset_bytes, base, &close_import, device};
  }
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, std::move(data), nullptr,
                      /*resizable=*/false);
}

}  // namespace torch_openreg
