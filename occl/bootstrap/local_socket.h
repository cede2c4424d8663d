// Abstract Unix sockets between processes of one user on one host. Messages keep their boundaries
// (SOCK_SEQPACKET) and have fixed sizes; nothing is left in any file system.
#ifndef OCCL_BOOTSTRAP_LOCAL_SOCKET_H_
#define OCCL_BOOTSTRAP_LOCAL_SOCKET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "occl/base/clock.h"
#include "occl/base/status.h"
#include "occl/base/unique_fd.h"

namespace occl {

inline constexpr size_t kMaxFdsPerMessage = 200;  // the kernel's limit is 253

// A name nobody can guess.
std::string RandomSocketName();
Status Listen(const std::string& name, UniqueFd* listener);
// That came from another process: a socket as Listen makes them.
bool IsListener(const UniqueFd& fd);
// occlRemoteError if nobody listens there (yet, or any more), occlTimeout if too many wait there.
Status Connect(const std::string& name, UniqueFd* socket);
// Something has come, or the end has; never blocks.
bool Readable(const UniqueFd& socket);
// Accepts one connection that is waiting; an invalid descriptor if there is none or if its owner is
// another user, who is turned away. *shortage: not ok where it cannot be taken for want of
// descriptors or memory; it goes on waiting then.
UniqueFd AcceptSameUser(const UniqueFd& listener, Status* shortage);
// False once the other end has gone.
Status SendMessage(const UniqueFd& socket, const void* data, size_t size,
                   const std::vector<int>& fds, const Deadline& deadline);
// A message of exactly `size` bytes. occlRemoteError: the other end has closed; occlTimeout;
// occlInternalError: a message of another size. *fds takes the descriptors that came along.
Status ReceiveMessage(const UniqueFd& socket, void* data, size_t size, std::vector<UniqueFd>* fds,
                      const Deadline& deadline);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_LOCAL_SOCKET_H_
