#include "openreg/runtime/ipc_protocol.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr int kBacklog = 256;
constexpr int kPollSliceMs = 1000;

socklen_t FillAddress(uint64_t name, sockaddr_un* address) {
  *address = sockaddr_un{};
  address->sun_family = AF_UNIX;
  // A leading zero byte: the abstract namespace, nothing in the file system.
  int length = std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "openreg-%016llx",
                             static_cast<unsigned long long>(name));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

Status MakeSocket(int* fd) {
  ScopedForkLock lock;
  *fd = AboveStandard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (*fd < 0) return SystemError("socket", errno);
  TrackDescriptor(*fd);
  return Status();
}

Status TimedOut(const char* what) {
  return Status(orErrorTimeout, Format("the peer process did not answer in time (%s)", what));
}

Status PeerGone() {
  return Status(orErrorPeerDead, "the process that owns the imported resource has ended");
}

// Waits until the socket can be used for `events`; false after the deadline.
bool Ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    int rc = poll(&entry, 1, deadline.RemainingMs(kPollSliceMs));
    if (rc > 0) return true;
    if (rc == 0 && deadline.Passed()) return false;
  }
}

}  // namespace

Status RandomBytes(void* bytes, size_t size) {
  // Up to 256 bytes come whole or not at all (getrandom(2)).
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) {
    return SystemError("getrandom", errno);
  }
  return Status();
}

Status ParseIpcHandle(const void* bytes, IpcKind kind, IpcHandle* handle) {
  std::memcpy(handle, bytes, sizeof *handle);
  if (handle->magic != kIpcMagic) {
    return InvalidValue("the bytes are not an IPC handle of this runtime");
  }
  if (handle->version != kIpcVersion) {
    return InvalidValue(
        Format("IPC handle: expected version %d, got %d: both processes need the "
               "same version of openreg",
               kIpcVersion, handle->version));
  }
  if (handle->kind != kind) {
    return InvalidValue(Format("IPC handle: expected kind %d, got %d (1 memory, 2 event, 3 device)",
                               static_cast<int>(kind), static_cast<int>(handle->kind)));
  }
  return Status();
}

Status ListenAt(uint64_t name, int* fd) {
  OPENREG_RETURN_IF_ERROR(MakeSocket(fd));
  sockaddr_un address;
  socklen_t length = FillAddress(name, &address);
  if (bind(*fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(*fd, kBacklog) != 0) {
    Status status = SystemError("listening for peer processes", errno);
    CloseTracked(*fd);
    return status;
  }
  return Status();
}

namespace {

bool FindPeer(int fd, ucred* peer) {
  socklen_t size = sizeof *peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size) == 0;
}

}  // namespace

bool PeerIsSameUser(int fd) {
  ucred peer{};
  return FindPeer(fd, &peer) && peer.uid == geteuid();
}

int PidOfPeer(int fd) {
  ucred peer{};
  return FindPeer(fd, &peer) ? peer.pid : 0;
}

Status ConnectTo(uint64_t name, Deadline deadline, int* fd) {
  OPENREG_RETURN_IF_ERROR(MakeSocket(fd));
  sockaddr_un address;
  socklen_t length = FillAddress(name, &address);
  Status status;
  while (true) {
    if (connect(*fd, reinterpret_cast<sockaddr*>(&address), length) == 0) break;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      status = errno == ECONNREFUSED ? PeerGone() : SystemError("connect to a peer process", errno);
      break;
    }
    // The owner's backlog is full; for Unix sockets there is nothing to poll for.
    if (deadline.Passed()) {
      status = TimedOut("connect");
      break;
    }
    poll(nullptr, 0, 1);
  }
  if (status.ok() && !PeerIsSameUser(*fd)) {
    status = Status(orErrorNotPermitted, "the handle's owner runs as another user");
  }
  if (!status.ok()) CloseTracked(*fd);
  return status;
}

bool SendReply(int fd, const IpcReply& reply, int passed_fd) {
  iovec data{const_cast<IpcReply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed_fd, sizeof passed_fd);
  }
  return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof reply);
}

namespace {

Status SendAll(int fd, const void* bytes, size_t size, Deadline deadline) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    ssize_t sent = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      size -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!Ready(fd, POLLOUT, deadline)) return TimedOut("request");
    } else if (errno != EINTR) {
      return PeerGone();
    }
  }
  return Status();
}

// Receives bytes and keeps the first descriptor that comes along; closes any other.
Status ReceiveAll(int fd, void* bytes, size_t size, Deadline deadline, int* passed_fd) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    iovec data{at, size};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t received;
    {
      ScopedForkLock lock;
      received = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      if (received > 0) {
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
             header = CMSG_NXTHDR(&message, header)) {
          if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
          size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
          for (size_t i = 0; i < count; ++i) {
            int passed;
            std::memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof passed);
            if (*passed_fd >= 0) {
              close(passed);
            } else {
              *passed_fd = AboveStandard(passed);
              if (*passed_fd >= 0) TrackDescriptor(*passed_fd);
            }
          }
        }
      }
    }
    if (received > 0) {
      at += received;
      size -= static_cast<size_t>(received);
    } else if (received == 0) {
      return PeerGone();
    } else if (errno == EAGAIN) {
      if (!Ready(fd, POLLIN, deadline)) return TimedOut("reply");
    } else if (errno != EINTR) {
      return PeerGone();
    }
  }
  return Status();
}

}  // namespace

Status Exchange(int fd, const IpcRequest& request, Deadline deadline, IpcReply* reply,
                int* passed_fd) {
  *passed_fd = -1;
  OPENREG_RETURN_IF_ERROR(SendAll(fd, &request, sizeof request, deadline));
  Status status = ReceiveAll(fd, reply, sizeof *reply, deadline, passed_fd);
  if (status.ok() && reply->magic != kIpcMagic) {
    status = Status(orErrorOperatingSystem, "the peer process sent a malformed reply");
  }
  if (!status.ok()) {
    CloseTracked(*passed_fd);
    *passed_fd = -1;
  }
  return status;
}

}  // namespace openreg
