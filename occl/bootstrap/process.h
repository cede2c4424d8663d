// Processes: who this one is, and whether a peer's still runs.
#ifndef OCCL_BOOTSTRAP_PROCESS_H_
#define OCCL_BOOTSTRAP_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "occl/base/unique_fd.h"

namespace occl {

// Tells processes apart across pid namespaces and reuse of pids. Filled at random once a process
// (again after a fork).
struct ProcessToken {
  uint64_t words[2];
  bool operator==(const ProcessToken&) const = default;
};
ProcessToken OwnProcessToken();

// Names a process, also once its pid is another's.
struct ProcessId {
  int64_t pid;
  uint64_t pid_namespace;  // 0: unknown
  uint64_t start_ticks;    // since the host's start; 0: unknown
};
ProcessId OwnProcessId();
// False where it cannot be known: in another pid namespace.
bool HasEnded(const ProcessId& process);

// The processors that a process may run on, one bit each.
struct ProcessorSet {
  uint64_t words[16];
  void Add(const ProcessorSet& other);
  int Count() const;
};
// Empty where the kernel numbers more processors than the set has bits.
ProcessorSet OwnProcessors();

// 16 bytes from the system's generator.
struct Secret {
  unsigned char bytes[16];
};
Secret RandomSecret();
// Takes the same time wherever they differ.
bool SameSecret(const Secret& a, const Secret& b);

// A descriptor that becomes readable when the process at the other end of a connected socket ends;
// invalid if the kernel has no such thing, or for want of descriptors (errno).
UniqueFd PidFdOfSocketPeer(int socket);
UniqueFd PidFdOfSelf();
// Invalid if the process has ended, as *ended says, or runs in another pid namespace, where its
// number says nothing here.
UniqueFd PidFdOf(pid_t pid, uint64_t pid_namespace, bool* ended);
uint64_t OwnPidNamespace();
// fds[i] < 0 is skipped. ended[i] is set to true where process i has ended, and never reset.
void CheckEnded(const std::vector<UniqueFd>& pidfds, std::vector<bool>* ended);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_PROCESS_H_
