#include "openreg/runtime/ipc.h"

#include <cstring>
#include <utility>

#include "openreg/runtime/block_allocator.h"
#include "openreg/runtime/event.h"
#include "openreg/runtime/runtime.h"

namespace openreg {
namespace {

// For opens without a deadline of the caller's: a live owner answers in microseconds.
constexpr int64_t kOpenMs = 30000;

template <class Handle>
void Write(const IpcHandle& from, Handle* to) {
  static_assert(sizeof *to == sizeof from);
  std::memcpy(to, &from, sizeof from);
}

}  // namespace

Ipc::Ipc(Runtime* runtime)
    : runtime_(runtime),
      server_([runtime](uint64_t device) -> BlockAllocator* {
        return runtime->AllocatorIfAny(device);
      }),
      client_(&runtime->space()) {}

// ---------------------------------------------------------------------------- memory

Status Ipc::ExportMemory(void* ptr, orIpcMemHandle_t* handle) {
  PointerInfo info;
  OPENREG_RETURN_IF_ERROR(runtime_->GetPointerInfo(ptr, &info));
  if (info.type != orMemoryTypeDevice || info.imported) {
    return Status(orErrorInvalidDevicePointer,
                  Format("IPC handle: expected device memory of this process, got %p (%s)", ptr,
                         info.imported ? "imported" : "host memory"));
  }
  IpcHandle filled;
  OPENREG_RETURN_IF_ERROR(server_.Export(&filled));
  filled.kind = IpcKind::kMemory;
  filled.device = static_cast<uint8_t>(info.region->device);
  filled.offset = static_cast<uint64_t>(info.base - info.region->device_base);
  filled.generation = info.generation;
  filled.size = info.size;
  Write(filled, handle);
  return Status();
}

Status Ipc::OpenMemory(const orIpcMemHandle_t& bytes, void** ptr) {
  IpcHandle handle;
  OPENREG_RETURN_IF_ERROR(ParseIpcHandle(&bytes, IpcKind::kMemory, &handle));
  if (server_.IsOwn(handle)) return OpenOwnMemory(handle, ptr);
  return client_.OpenMemory(handle, Deadline::AfterMs(kOpenMs), ptr);
}

Status Ipc::OpenOwnMemory(const IpcHandle& handle, void** ptr) {
  BlockAllocator* allocator = runtime_->AllocatorIfAny(handle.device);
  uint64_t size;
  if (allocator == nullptr || !allocator->RetainExact(handle.offset, handle.generation, &size)) {
    return Status(orErrorInvalidResourceHandle, "IPC handle: the memory has been freed");
  }
  *ptr = allocator->arena().device_base() + handle.offset;
  std::lock_guard<std::mutex> lock(own_mutex_);
  ++own_opens_[*ptr];
  return Status();
}

Status Ipc::CloseMemory(void* ptr) {
  Region* region = runtime_->space().Find(ptr);
  if (region == nullptr) {
    return InvalidValue(Format("close: %p is no device memory", ptr));
  }
  std::shared_ptr<void> last;
  if (region->imported != nullptr) {
    OPENREG_RETURN_IF_ERROR(client_.CloseMemory(region->imported, ptr, &last));
  } else {
    std::lock_guard<std::mutex> lock(own_mutex_);
    auto open = own_opens_.find(ptr);
    if (open == own_opens_.end()) {
      return InvalidValue(Format("close: %p was not opened, or is closed already", ptr));
    }
    if (--open->second == 0) own_opens_.erase(open);
    BlockAllocator* allocator = region->allocator;
    last = std::shared_ptr<void>(ptr, [allocator](void* its) { (void)allocator->Release(its); });
  }
  // Work that was queued here may use it still.
  runtime_->KeepUntilIdle(std::move(last));
  return Status();
}

// ---------------------------------------------------------------------------- devices

Status Ipc::ExportDevice(int device, orIpcDeviceHandle_t* handle) {
  BlockAllocator* allocator;
  OPENREG_RETURN_IF_ERROR(runtime_->GetAllocator(device, &allocator));
  IpcHandle filled;
  OPENREG_RETURN_IF_ERROR(server_.Export(&filled));
  filled.kind = IpcKind::kDevice;
  filled.device = static_cast<uint8_t>(device);
  filled.size = allocator->arena().size();
  Write(filled, handle);
  return Status();
}

Status Ipc::OpenDevice(const orIpcDeviceHandle_t& bytes, Deadline deadline, orIpcDevice_t* peer) {
  IpcHandle handle;
  OPENREG_RETURN_IF_ERROR(ParseIpcHandle(&bytes, IpcKind::kDevice, &handle));
  std::shared_ptr<ImportedArena> imported;
  if (!server_.IsOwn(handle)) {
    OPENREG_RETURN_IF_ERROR(client_.OpenDevice(handle, deadline, &imported));
  } else if (runtime_->AllocatorIfAny(handle.device) == nullptr) {
    return InvalidValue("IPC handle: the device's number is out of range");
  }
  orIpcDevice_t opened = devices_.Insert([&](OpenedDevice* device, orIpcDevice_t) {
    device->imported = std::move(imported);
    device->device = handle.device;
  });
  if (opened == nullptr) return Status(orErrorMemoryAllocation, "a million devices are open");
  *peer = opened;
  return Status();
}

Status Ipc::GetArena(orIpcDevice_t peer, orArenaInfo* arena) {
  const OpenedDevice* device = devices_.Get(peer);
  if (device == nullptr) {
    return Status(orErrorInvalidResourceHandle,
                  Format("expected an opened device, got %p", static_cast<void*>(peer)));
  }
  const Region& region =
      device->imported != nullptr
          ? device->imported->region()
          : *runtime_->AllocatorIfAny(static_cast<uint64_t>(device->device))->arena().region;
  arena->deviceBase = region.device_base;
  arena->kernelBase = region.device_base + runtime_->space().delta();
  arena->size = region.size;
  return Status();
}

Status Ipc::CloseDevice(orIpcDevice_t peer) {
  OpenedDevice* device = devices_.Remove(peer);
  if (device == nullptr) {
    return Status(orErrorInvalidResourceHandle,
                  Format("expected an opened device, got %p", static_cast<void*>(peer)));
  }
  std::shared_ptr<ImportedArena> imported = std::move(device->imported);
  devices_.Recycle(peer);
  if (imported != nullptr) runtime_->KeepUntilIdle(std::move(imported));
  return Status();
}

// ---------------------------------------------------------------------------- events

Status Ipc::NewSharedEvent(SharedEvent* event) {
  std::shared_ptr<SharedEventCell> cell;
  OPENREG_RETURN_IF_ERROR(server_.events().NewCell(&cell));
  *event = SharedEvent::Own(std::move(cell));
  return Status();
}

Status Ipc::ExportEvent(const Event& event, orIpcEventHandle_t* handle) {
  if (!event.shared().valid() || event.imported()) {
    return Status(orErrorInvalidResourceHandle,
                  "IPC handle: expected an event of this process made with orEventInterprocess");
  }
  IpcHandle filled;
  OPENREG_RETURN_IF_ERROR(server_.Export(&filled));
  filled.kind = IpcKind::kEvent;
  filled.device = static_cast<uint8_t>(event.device());
  server_.events().Locate(event.shared().cell(), &filled.offset, &filled.generation);
  Write(filled, handle);
  return Status();
}

Status Ipc::OpenEvent(const orIpcEventHandle_t& bytes, orEvent_t* event) {
  IpcHandle handle;
  OPENREG_RETURN_IF_ERROR(ParseIpcHandle(&bytes, IpcKind::kEvent, &handle));
  if (server_.IsOwn(handle)) {
    return Status(orErrorNotSupported,
                  "IPC handle: an event cannot be opened in the process that made it");
  }
  SharedEvent shared;
  OPENREG_RETURN_IF_ERROR(client_.OpenEvent(handle, Deadline::AfterMs(kOpenMs), &shared));
  return runtime_->InsertEvent(handle.device, orEventDisableTiming | orEventInterprocess,
                               std::move(shared), event);
}

}  // namespace openreg
