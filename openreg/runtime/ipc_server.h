// The owner's side of memory and events between processes: one thread that answers the requests of
// importers. It starts with the first handle that is made.
//
// A connection is an importer's reference: what it retained is released when it closes, which the
// system does for a process that dies. The peer is not trusted beyond being of the same user and
// knowing the secret: messages have a fixed size and are checked field by field, nothing it sends
// or fails to send makes the thread wait, and all that it can make the owner hold is bounded.
#ifndef OPENREG_RUNTIME_IPC_SERVER_H_
#define OPENREG_RUNTIME_IPC_SERVER_H_

#include <pthread.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "openreg/runtime/event_page.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/ipc_protocol.h"
#include "openreg/runtime/status.h"

namespace openreg {

class BlockAllocator;

class IpcServer {
 public:
  // `allocator_of` gives the allocator of a device that has memory, else NULL.
  explicit IpcServer(std::function<BlockAllocator*(uint64_t device)> allocator_of)
      : allocator_of_(std::move(allocator_of)) {}

  // Starts listening if need be, and fills in a handle's address.
  Status Export(IpcHandle* handle);
  // True for a handle that this process made.
  bool IsOwn(const IpcHandle& handle) const;
  EventPage& events() { return events_; }
  // At exit.
  void Stop(Deadline deadline);

 private:
  struct Connection {
    int fd = -1;
    uint32_t id = 0;     // what its records in events are known by; 0 is this process
    bool known = false;  // has shown the secret
    int64_t since_ns = 0;
    size_t received = 0;  // bytes of `request` so far
    IpcRequest request;
    std::map<std::pair<uint64_t, uint64_t>, uint32_t> memory;  // (device, offset) -> retains
    std::map<uint64_t, std::pair<std::shared_ptr<SharedEventCell>, uint32_t>> events;  // by cell
  };

  Status StartLocked();
  static void* ThreadMain(void* self);
  void Serve();
  void Accept();
  bool TurnAway();
  // False if the connection is to be closed.
  bool Receive(Connection* connection);
  bool Answer(Connection* connection);
  orError_t RetainMemory(Connection* connection, uint64_t* size);
  orError_t ReleaseMemory(Connection* connection);
  orError_t RetainEvent(Connection* connection, uint64_t* recorder);
  orError_t ReleaseEvent(Connection* connection);
  void Close(Connection* connection);

  const std::function<BlockAllocator*(uint64_t)> allocator_of_;
  EventPage events_;

  std::mutex mutex_;  // serialises Export's start and Stop
  std::atomic<bool> started_{false};
  std::atomic<bool> stop_{false};
  IpcAddress address_;  // constant after the start, as the next three
  int listen_fd_ = -1;
  int spare_fd_ = -1;  // given up for a moment where no other is left
  int wake_fd_ = -1;
  pthread_t thread_{};

  // The thread's own.
  std::vector<std::unique_ptr<Connection>> connections_;
  int64_t accept_after_ns_ = 0;
  uint32_t last_connection_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_SERVER_H_
