// Memory and events between processes.
#include "openreg/runtime/capi_error.h"
#include "openreg/runtime/ipc.h"

using openreg::Deadline;
using openreg::Enter;
using openreg::Event;
using openreg::Runtime;
using openreg::Status;

extern "C" {

orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* ptr) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(handle);
    return runtime.ipc().ExportMemory(ptr, handle);
  });
}

orError_t orIpcOpenMemHandle(void** ptr, const orIpcMemHandle_t* handle) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(ptr);
    OPENREG_CHECK_OUT(handle);
    return runtime.ipc().OpenMemory(*handle, ptr);
  });
}

orError_t orIpcCloseMemHandle(void* ptr) {
  return Enter([&](Runtime& runtime) { return runtime.ipc().CloseMemory(ptr); });
}

orError_t orIpcCollect(void) {
  return Enter([&](Runtime& runtime) {
    for (int i = 0; i < runtime.config().device_count; ++i) {
      openreg::BlockAllocator* allocator = runtime.AllocatorIfAny(static_cast<uint64_t>(i));
      if (allocator != nullptr) allocator->ProcessPending();
    }
    return Status();
  });
}

orError_t orIpcGetEventHandle(orIpcEventHandle_t* handle, orEvent_t event) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(handle);
    Event* found;
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(event, &found));
    return runtime.ipc().ExportEvent(*found, handle);
  });
}

orError_t orIpcOpenEventHandle(orEvent_t* event, const orIpcEventHandle_t* handle) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(event);
    OPENREG_CHECK_OUT(handle);
    return runtime.ipc().OpenEvent(*handle, event);
  });
}

orError_t orIpcGetDeviceHandle(orIpcDeviceHandle_t* handle, int device) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(handle);
    return runtime.ipc().ExportDevice(device, handle);
  });
}

orError_t orIpcOpenDevice(orIpcDevice_t* peer, const orIpcDeviceHandle_t* handle,
                          int64_t timeout_ms) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(peer);
    OPENREG_CHECK_OUT(handle);
    return runtime.ipc().OpenDevice(*handle, Deadline::AfterMs(timeout_ms), peer);
  });
}

orError_t orIpcDeviceGetArena(orIpcDevice_t peer, orArenaInfo* arena) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(arena);
    return runtime.ipc().GetArena(peer, arena);
  });
}

orError_t orIpcCloseDevice(orIpcDevice_t peer) {
  return Enter([&](Runtime& runtime) { return runtime.ipc().CloseDevice(peer); });
}

}  // extern "C"
