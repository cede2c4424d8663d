#include "occl/transport/direct/peer_arena.h"

#include <map>
#include <mutex>
#include <string>

namespace occl {
namespace {

struct OpenArenas {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<PeerArena>> by_handle;
};
OpenArenas& AllArenas() {
  static OpenArenas* const arenas = new OpenArenas;  // outlives every thread
  return *arenas;
}

// Who is to blame stays the same.
occlResult_t CodeOf(orError_t error) {
  switch (error) {
    case orErrorInvalidValue:
    case orErrorInvalidDevice:
    case orErrorInvalidDevicePointer:
    case orErrorInvalidResourceHandle:
      return occlInvalidArgument;
    case orErrorNotPermitted:
      return occlInvalidUsage;
    case orErrorTimeout:
      return occlTimeout;
    case orErrorPeerDead:
      return occlRemoteError;
    case orErrorNotSupported:
      return occlNotSupported;
    case orErrorOperatingSystem:
      return occlSystemError;
    default:
      return occlUnhandledDeviceError;
  }
}

}  // namespace

Status FromRuntime(orError_t error, const char* call) {
  if (error == orSuccess) return Status();
  const char* message = orGetLastErrorMessage();
  return Error(CodeOf(error), "%s failed: %s (%s)", call,
               message[0] != '\0' ? message : orGetErrorString(error), orGetErrorName(error));
}

Status PeerArena::Open(const orIpcDeviceHandle_t& handle, int64_t timeout_ms,
                       std::shared_ptr<PeerArena>* arena) {
  const std::string key(reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved));
  OpenArenas& arenas = AllArenas();
  {
    std::lock_guard<std::mutex> lock(arenas.mutex);
    std::erase_if(arenas.by_handle, [](const auto& entry) { return entry.second.expired(); });
    auto known = arenas.by_handle.find(key);
    if (known != arenas.by_handle.end() && (*arena = known->second.lock()) != nullptr) {
      return Status();
    }
  }
  // Not under the lock: the owner may be slow to answer. Two threads that open the same arena at
  // once get two objects, which does no harm.
  orIpcDevice_t device = nullptr;
  OCCL_RETURN_IF_ERROR(
      FromRuntime(orIpcOpenDevice(&device, &handle, timeout_ms), "orIpcOpenDevice"));
  std::shared_ptr<PeerArena> opened(new PeerArena(device));
  orArenaInfo info;
  OCCL_RETURN_IF_ERROR(FromRuntime(orIpcDeviceGetArena(device, &info), "orIpcDeviceGetArena"));
  opened->base_ = static_cast<unsigned char*>(info.kernelBase);
  opened->size_bytes_ = info.size;
  std::lock_guard<std::mutex> lock(arenas.mutex);
  arenas.by_handle[key] = opened;
  *arena = std::move(opened);
  return Status();
}

PeerArena::~PeerArena() {
  // Nothing can be done about a failure, and nothing depends on it.
  static_cast<void>(orIpcCloseDevice(device_));
}

}  // namespace occl
