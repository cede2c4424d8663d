#include "occl/core/peers.h"

namespace occl {

Peers::Peers(Gathering* gathering)
    : pidfds_(std::move(gathering->pidfds)), ended_(pidfds_.size(), false) {
  for (const RankCard& card : gathering->cards) pids_.push_back(card.pid);
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
  return std::to_string(rank) + " (pid " + std::to_string(pids_[rank]) + ")";
}

}  // namespace occl
