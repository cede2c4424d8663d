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
  synchronize_device(shared.device);
  orIpcMemHandle_t handle;
  OR_CHECK(orIpcGetMemHandle(&handle, ptr));
  shared.handle.assign(reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved));
  shared.offset_bytes = static_cast<const char*>(ptr) - static_cast<const char*>(attributes.base);
  return shared;
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
