// Memory and events between processes: what the API's handles stand for, here and there.
#ifndef OPENREG_RUNTIME_IPC_H_
#define OPENREG_RUNTIME_IPC_H_

#include <map>
#include <memory>
#include <mutex>

#include "openreg/api/openreg.h"
#include "openreg/runtime/handle_table.h"
#include "openreg/runtime/ipc_client.h"
#include "openreg/runtime/ipc_server.h"
#include "openreg/runtime/status.h"

namespace openreg {

class Event;
class Runtime;

class Ipc {
 public:
  explicit Ipc(Runtime* runtime);

  Status ExportMemory(void* ptr, orIpcMemHandle_t* handle);
  Status OpenMemory(const orIpcMemHandle_t& handle, void** ptr);
  Status CloseMemory(void* ptr);

  Status ExportDevice(int device, orIpcDeviceHandle_t* handle);
  Status OpenDevice(const orIpcDeviceHandle_t& handle, Deadline deadline, orIpcDevice_t* peer);
  Status GetArena(orIpcDevice_t peer, orArenaInfo* arena);
  Status CloseDevice(orIpcDevice_t peer);

  // A cell for a new event with orEventInterprocess.
  Status NewSharedEvent(SharedEvent* event);
  Status ExportEvent(const Event& event, orIpcEventHandle_t* handle);
  Status OpenEvent(const orIpcEventHandle_t& handle, orEvent_t* event);

  // At exit.
  void Stop(Deadline deadline) { server_.Stop(deadline); }

 private:
  // An open device: a peer's, or (imported NULL) an own one.
  struct OpenedDevice {
    std::shared_ptr<ImportedArena> imported;
    int device = -1;
  };

  Status OpenOwnMemory(const IpcHandle& handle, void** ptr);

  Runtime* const runtime_;
  IpcServer server_;
  IpcClient client_;
  HandleTable<OpenedDevice, 3, orIpcDevice_t> devices_;

  std::mutex own_mutex_;                 // guards own_opens_
  std::map<void*, unsigned> own_opens_;  // handles of this process that it opened itself
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_H_
