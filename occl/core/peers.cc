#include "occl/core/peers.h"

namespace occl {

Peers::Peers(Gathering* gathering)
    : pidfds_(std::move(gathering->pidfds)), ended_(pidfds_.size(), false) {
  for (const RankCard& card : gathering->cards) pids_.push_back(card.pid);
}

int64_t Peers::pid(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pids_[rank];
}

void Peers::Expect(int rank, int64_t pid, UniqueFd pidfd) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pids_[rank] != 0) return;
  pids_[rank] = pid;
  ended_[rank] = !pidfd.valid();
  pidfds_[rank] = std::move(pidfd);
}

void Peers::Meet(int rank, int64_t pid, UniqueFd pidfd, bool ended) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pids_[rank] != pid) ended_[rank] = false;  // not the one that was expected
  ended_[rank] = ended_[rank] || ended;
  pids_[rank] = pid;
  pidfds_[rank] = std::move(pidfd);
}

void Peers::Refresh() {
  std::lock_guard<std::mutex> lock(mutex_);
  CheckEnded(pidfds_, &ended_);
}

bool Peers::Ended(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ended_[rank];
}

std::string Peers::Name(int rank) const {
  const int64_t number = pid(rank);
  return std::to_string(rank) +
         (number != 0 ? " (pid " + std::to_string(number) + ")" : " (which has not joined)");
}

}  // namespace occl
