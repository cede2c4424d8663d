// The importer's side of memory and events between processes. A peer is connected to once, each of
// its devices mapped once, however often its handles are opened; the connection is what keeps the
// owner's blocks (ipc_server.h).
#ifndef OPENREG_RUNTIME_IPC_CLIENT_H_
#define OPENREG_RUNTIME_IPC_CLIENT_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg/runtime/address_space.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/ipc_event.h"
#include "openreg/runtime/ipc_protocol.h"
#include "openreg/runtime/status.h"

namespace openreg {

class IpcPeer;

// A peer's device in our address space. Unmapped when the last reference goes.
class ImportedArena {
 public:
  ImportedArena(AddressSpace* space, std::shared_ptr<IpcPeer> peer, Region* region)
      : space_(space), peer_(std::move(peer)), region_(region) {}
  ~ImportedArena();

  const Region& region() const { return *region_; }
  IpcPeer& peer() { return *peer_; }

  // The opened allocation that contains the offset; false if there is none.
  bool FindBlock(size_t offset, size_t* start, size_t* size);

 private:
  friend class IpcClient;
  struct OpenBlock {
    size_t size = 0;
    uint64_t generation = 0;
    unsigned opens = 0;
    std::shared_ptr<ImportedArena> self;  // an open block keeps the mapping
  };

  AddressSpace* const space_;
  const std::shared_ptr<IpcPeer> peer_;
  Region* const region_;
  std::mutex mutex_;                    // guards blocks_
  std::map<size_t, OpenBlock> blocks_;  // by offset
};

// The connection to one owner.
class IpcPeer : public PeerLiveness {
 public:
  explicit IpcPeer(const IpcAddress& address) : address_(address) {}
  ~IpcPeer() override;

  bool Alive() const override;
  // Sends a request whose answer does not matter.
  void Tell(const IpcRequest& request);

 private:
  friend class IpcClient;
  friend class ImportedArena;
  // With mutex_ held.
  Status CallLocked(IpcRequest request, Deadline deadline, IpcReply* reply, int* passed_fd);

  const IpcAddress address_;
  FutexLock mutex_;  // one exchange at a time; guards the rest
  std::atomic<int> fd_{-1};
  std::atomic<bool> shutdown_{false};  // an exchange failed: not to be used any more
  std::map<int, std::weak_ptr<ImportedArena>> arenas_;
  std::weak_ptr<void> event_page_;
};

class IpcClient {
 public:
  explicit IpcClient(AddressSpace* space) : space_(space) {}

  Status OpenDevice(const IpcHandle& handle, Deadline deadline,
                    std::shared_ptr<ImportedArena>* arena);
  // *ptr: the device address of the peer's allocation here.
  Status OpenMemory(const IpcHandle& handle, Deadline deadline, void** ptr);
  // Ends one open. What is to be let go of (perhaps nothing) goes into *last: its destruction tells
  // the owner. Errors: orErrorInvalidValue.
  Status CloseMemory(ImportedArena* arena, void* ptr, std::shared_ptr<void>* last);
  Status OpenEvent(const IpcHandle& handle, Deadline deadline, SharedEvent* event);

 private:
  std::shared_ptr<IpcPeer> PeerFor(const IpcAddress& address);
  Status OpenDeviceLocked(const std::shared_ptr<IpcPeer>& peer, const IpcHandle& handle,
                          Deadline deadline, std::shared_ptr<ImportedArena>* arena);
  Status MapArena(int fd, uint64_t size, const std::shared_ptr<IpcPeer>& peer, int device,
                  std::shared_ptr<ImportedArena>* arena);

  AddressSpace* const space_;
  std::mutex mutex_;  // guards peers_
  std::vector<std::weak_ptr<IpcPeer>> peers_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_CLIENT_H_
