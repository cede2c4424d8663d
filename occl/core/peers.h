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

  int64_t pid(int rank) const { return pids_[rank]; }
  // Asks the kernel once for all ranks. Thread-safe; one system call.
  void Refresh();
  // As of the last Refresh.
  bool Ended(int rank) const;
  // "2 (pid 4711)"
  std::string Name(int rank) const;

 private:
  // Constant after construction.
  std::vector<int64_t> pids_;
  std::vector<UniqueFd> pidfds_;

  mutable std::mutex mutex_;
  std::vector<bool> ended_;  // guarded by mutex_
};

}  // namespace occl

#endif  // OCCL_CORE_PEERS_H_
