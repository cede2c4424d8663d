// What travels between processes: handles (by any channel the caller likes), and the requests and
// replies on the owner's socket. All are plain structs of fixed size; processes of one machine, and
// of one version of this runtime, talk to each other.
#ifndef OPENREG_RUNTIME_IPC_PROTOCOL_H_
#define OPENREG_RUNTIME_IPC_PROTOCOL_H_

#include <cstdint>
#include <cstring>

#include "openreg/api/openreg.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/status.h"

namespace openreg {

inline constexpr uint32_t kIpcMagic = 0x47524f49;  // "IORG"
inline constexpr uint16_t kIpcVersion = 2;

// How to reach a process and to prove that one was given a handle of it.
struct IpcAddress {
  uint64_t name = 0;  // of the listener: the abstract socket "\0openreg-<name in hex>"
  uint64_t secret[2] = {};

  bool operator==(const IpcAddress& other) const {
    return name == other.name && secret[0] == other.secret[0] && secret[1] == other.secret[1];
  }
};

enum class IpcKind : uint8_t { kMemory = 1, kEvent = 2, kDevice = 3 };

// What is inside of the API's 64-byte handles.
struct IpcHandle {
  uint32_t magic = kIpcMagic;
  uint16_t version = kIpcVersion;
  IpcKind kind{};
  uint8_t device = 0;
  int32_t pid = 0;  // for messages
  uint32_t reserved = 0;
  IpcAddress address;
  uint64_t offset = 0;      // memory: of the allocation in its arena; events: the cell
  uint64_t generation = 0;  // of the allocation or cell
  uint64_t size = 0;        // memory: bytes of the allocation
};
static_assert(sizeof(IpcHandle) == OR_IPC_HANDLE_SIZE);

// Errors: orErrorInvalidValue (the bytes are no handle of this kind).
Status ParseIpcHandle(const void* bytes, IpcKind kind, IpcHandle* handle);

enum class IpcOperation : uint16_t {
  kOpenDevice = 1,    // reply: size, and the arena's descriptor
  kRetainMemory = 2,  // reply: size of the allocation
  kReleaseMemory = 3,
  kOpenEvents = 4,   // reply: size, and the event page's descriptor
  kRetainEvent = 5,  // reply: size is what the owner calls the connection
  kReleaseEvent = 6
};

struct IpcRequest {
  uint32_t magic = kIpcMagic;
  uint16_t version = kIpcVersion;
  IpcOperation operation{};
  uint64_t secret[2] = {};
  uint64_t device = 0;
  uint64_t offset = 0;
  uint64_t generation = 0;
};
static_assert(sizeof(IpcRequest) == 48);

struct IpcReply {
  uint32_t magic = kIpcMagic;
  int32_t error = orSuccess;  // an orError_t
  uint64_t size = 0;
};
static_assert(sizeof(IpcReply) == 16);

// Sockets. Every descriptor is close-on-exec, tracked (fork_guard.h) and non-blocking.

// A listening socket for the name, which must be unguessable.
Status ListenAt(uint64_t name, int* fd);
// Errors: orErrorPeerDead (nobody listens), orErrorNotPermitted (another user), orErrorTimeout.
Status ConnectTo(uint64_t name, Deadline deadline, int* fd);
// True if the process at the other end runs as our user.
bool PeerIsSameUser(int fd);
// Who has connected; 0 if it runs in a pid namespace that this process cannot see.
int PidOfPeer(int fd);
// Sends a reply and, unless passed_fd < 0, a descriptor. False if that is not possible at once.
bool SendReply(int fd, const IpcReply& reply, int passed_fd);
// One request and its reply; *passed_fd is -1 or a tracked descriptor. Errors: orErrorPeerDead,
// orErrorTimeout, orErrorOperatingSystem.
Status Exchange(int fd, const IpcRequest& request, Deadline deadline, IpcReply* reply,
                int* passed_fd);

// Unguessable bytes.
Status RandomBytes(void* bytes, size_t size);

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_PROTOCOL_H_
