// What can be found out about the process of a peer.
#ifndef PYTHON_CSRC_C10D_PEER_PROCESS_H_
#define PYTHON_CSRC_C10D_PEER_PROCESS_H_

#include <cstdint>
#include <string>

namespace torch_openreg {

// What a process tells others about itself: plain bytes.
struct ProcessCard {
  std::int64_t pid;
  std::uint64_t pid_namespace;  // a pid means nothing in another one
};
ProcessCard own_process_card();

// Thread-safe. Moves, does not copy.
class PeerProcess {
 public:
  PeerProcess() = default;
  // Of a process in another namespace nothing is known: it counts as running.
  explicit PeerProcess(const ProcessCard& card);
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept : pid_(other.pid_), pidfd_(other.pidfd_) {
    other.pidfd_ = -1;
  }
  PeerProcess& operator=(PeerProcess&&) = delete;

  std::int64_t pid() const { return pid_; }
  // One system call.
  bool ended() const;

 private:
  std::int64_t pid_ = 0;
  int pidfd_ = -1;
};

// When the process started, in clock ticks since boot: tells it from a later one with its pid. ""
// if there is no such process.
std::string start_of(long long pid);
// Whether it is stopped (SIGSTOP, Ctrl-Z, a debugger).
bool is_stopped(long long pid);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_PEER_PROCESS_H_
