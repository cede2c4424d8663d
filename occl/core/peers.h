// The other ranks of a communicator as processes: who they are, and whether they still run.
#ifndef OCCL_CORE_PEERS_H_
#define OCCL_CORE_PEERS_H_

#include <mutex>
#include <string>
#include <vector>

#include "occl/base/unique_fd.h"
#include "occl/bootstrap/rendezvous.h"

namespace occl {

class Peers {
 public:
  explicit Peers(Gathering* gathering);

  // 0: it has not joined yet.
  int64_t pid(int rank) const;
  // The process that a rank is going to be; an invalid pidfd: it has ended. Nothing for a rank
  // whose process is known.
  void Expect(int rank, int64_t pid, UniqueFd pidfd);
  // The process of a rank that has joined, and may have ended since. Once a rank.
  void Meet(int rank, int64_t pid, UniqueFd pidfd, bool ended);
  // Asks the kernel once for all ranks. Thread-safe; one system call.
  void Refresh();
  // As of the last Refresh.
  bool Ended(int rank) const;
  // "2 (pid 4711)", "2 (which has not joined)"
  std::string Name(int rank) const;

 private:
  mutable std::mutex mutex_;  // guards the rest
  std::vector<int64_t> pids_;
  std::vector<UniqueFd> pidfds_;
  std::vector<bool> ended_;
};

}  // namespace occl

#endif  // OCCL_CORE_PEERS_H_
