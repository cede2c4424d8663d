// The other ranks of a communicator as processes: who they are, and whether they still run.
#ifndef OCCL_CORE_PEERS_H_
#define OCCL_CORE_PEERS_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "occl/base/clock.h"
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
  // The process of a rank that has just joined. Once a rank.
  void Meet(int rank, const RankCard& card);
  // Asks the kernel for all ranks. Thread-safe; a system call, and one for each rank.
  void Refresh();
  // As of the last Refresh.
  bool Ended(int rank) const;
  // Of one that has ended: " has died".
  const char* HowItEnded(int rank) const;
  // "2 (pid 4711)", "2 (which has not joined)"
  std::string Name(int rank) const;
  // "1 (pid 7), 2 (pid 9)": the ranks that `which`, bool(int), says yes to, until that is `most`
  // bytes long.
  template <typename F>
  std::string Names(size_t most, F which) const {
    std::string names;
    for (int r = 0; r < segment_->nranks() && names.size() < most; ++r) {
      if (which(r)) names += (names.empty() ? "" : ", ") + Name(r);
    }
    return names;
  }

 private:
  // What the lock of a rank tells that the pidfd does not.
  struct Life {
    bool watched = false;    // it has joined, in another process
    bool lost = false;       // its lock was not held at the last look, and it has not left
    bool replaced = false;   // it has called exec
    Deadline believed_dead;  // once lost
  };
  void RefreshLife(int rank);  // requires mutex_

  const std::shared_ptr<ControlSegment> segment_;
  const std::unique_ptr<LifeLock> life_lock_;
  mutable std::mutex mutex_;  // guards the rest
  std::vector<int64_t> pids_;
  std::vector<UniqueFd> pidfds_;
  std::vector<bool> ended_;
  std::vector<Life> lives_;
};

}  // namespace occl

#endif  // OCCL_CORE_PEERS_H_
