#include "occl/bootstrap/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "occl/bootstrap/process.h"

namespace occl {
namespace {

constexpr int kBacklog = 512;
constexpr int kPollSlice_ms = 1000;

socklen_t FillAddress(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  // A leading zero byte: the abstract name space, which disappears with the socket.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Waits for `events` until the deadline.
Status WaitFor(const UniqueFd& socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd poll_one = {socket.get(), events, 0};
    const int ready = poll(&poll_one, 1, deadline.RemainingMs(kPollSlice_ms));
    if (ready > 0) return Status();
    if (ready < 0 && errno != EINTR) return SystemError(errno, "poll on a bootstrap socket");
    if (deadline.Passed()) return Error(occlTimeout, "the other end did not answer in time");
  }
}

}  // namespace

bool Readable(const UniqueFd& socket) {
  pollfd poll_one = {socket.get(), POLLIN, 0};
  return poll(&poll_one, 1, 0) > 0;
}

std::string RandomSocketName() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "occl-";
  for (unsigned char byte : RandomSecret().bytes) {
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

Status Listen(const std::string& name, UniqueFd* listener) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SystemError(errno, "socket for the bootstrap");
  sockaddr_un address;
  const socklen_t size = FillAddress(name, &address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return SystemError(errno, "binding the bootstrap socket");
  }
  *listener = std::move(fd);
  return Status();
}

bool IsListener(const UniqueFd& fd) {
  const auto option = [&](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(fd.get(), SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  return option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_SEQPACKET &&
         option(SO_ACCEPTCONN) == 1;
}

Status Connect(const std::string& name, UniqueFd* connected) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SystemError(errno, "socket for the bootstrap");
  sockaddr_un address;
  const socklen_t size = FillAddress(name, &address);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    if (errno == EAGAIN) {
      return Error(occlTimeout, "too many wait at the bootstrap socket %s", name.c_str());
    }
    if (errno == ECONNREFUSED) {
      return Error(occlRemoteError, "nobody listens on the bootstrap socket %s", name.c_str());
    }
    return SystemError(errno, "connecting to the bootstrap socket");
  }
  ucred credentials;
  socklen_t credentials_size = sizeof(credentials);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) != 0 ||
      credentials.uid != geteuid()) {
    return Error(occlSystemError, "the bootstrap socket belongs to another user (uid %u)",
                 credentials.uid);
  }
  *connected = std::move(fd);
  return Status();
}

UniqueFd AcceptSameUser(const UniqueFd& listener, Status* shortage) {
  // Others have the same socket and can change this.
  fcntl(listener.get(), F_SETFL, O_NONBLOCK);
  UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int error = errno;
  *shortage = Status();
  if (!fd.valid()) {
    const bool short_of = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (short_of) *shortage = SystemError(error, "accepting on a bootstrap socket");
    return fd;
  }
  ucred credentials;
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.uid != geteuid()) {
    fd.Reset();
  }
  return fd;
}

Status SendMessage(const UniqueFd& socket, const void* data, size_t size,
                   const std::vector<int>& fds, const Deadline& deadline) {
  iovec part = {const_cast<void*>(data), size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  while (true) {
    if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size)) {
      return Status();
    }
    if (errno == EAGAIN) {
      OCCL_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Error(occlRemoteError, "the other end has closed the connection");
    } else if (errno != EINTR) {
      return SystemError(errno, "sending a bootstrap message");
    }
  }
}

Status ReceiveMessage(const UniqueFd& socket, void* data, size_t size, std::vector<UniqueFd>* fds,
                      const Deadline& deadline) {
  std::vector<char> control(CMSG_SPACE(kMaxFdsPerMessage * sizeof(int)));
  bool at_end = false;
  while (true) {
    iovec part = {data, size};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
      OCCL_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    // Of one message at a time the kernel looks for the end after it has looked for a message: one
    // that came in between is there now.
    if (got == 0 && !std::exchange(at_end, true)) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
      return Error(occlRemoteError, "the other end has closed the connection");
    }
    if (got < 0) return SystemError(errno, "receiving a bootstrap message");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        UniqueFd owned(fd);  // closed here unless the caller wants it
        if (fds != nullptr) fds->push_back(std::move(owned));
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0 && static_cast<size_t>(got) == size) {
      return Error(occlSystemError,
                   "the descriptors that came with a bootstrap message could not be taken: this "
                   "process has too many open files (ulimit -n)");
    }
    if (static_cast<size_t>(got) != size || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return Error(occlInternalError,
                   "a bootstrap message of %zd bytes came where %zu were expected", got, size);
    }
    return Status();
  }
}

}  // namespace occl
