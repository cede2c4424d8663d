#include "python/csrc/c10d/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/descriptors.h"

namespace torch_openreg {

ProcessCard own_process_card() {
  struct stat info{};
  const bool known = stat("/proc/self/ns/pid", &info) == 0;
  return {getpid(), known ? static_cast<std::uint64_t>(info.st_ino) : 0};
}

PeerProcess::PeerProcess(const ProcessCard& card) : pid_(card.pid) {
  const ProcessCard own = own_process_card();
  if (card.pid != own.pid && own.pid_namespace != 0 && card.pid_namespace == own.pid_namespace) {
    pidfd_ = descriptors::AboveStandard(
        static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(card.pid), 0)));
  }
}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) {
    close(pidfd_);
  }
}

bool PeerProcess::ended() const {
  pollfd poll_of_process{pidfd_, POLLIN, 0};
  return pidfd_ >= 0 && poll(&poll_of_process, 1, 0) > 0;
}

}  // namespace torch_openreg
