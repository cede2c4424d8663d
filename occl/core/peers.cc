#include "occl/core/peers.h"

namespace occl {
namespace {

// A process that ends lets its lock go a moment before its pidfd says so.
constexpr int64_t kBelieve_ms = 500;

}  // namespace

Peers::Peers(Gathering* gathering)
    : segment_(gathering->segment),
      life_lock_(std::move(gathering->life_lock)),
      pidfds_(std::move(gathering->pidfds)),
      ended_(pidfds_.size(), false),
      lives_(pidfds_.size()) {
  const ProcessToken own = OwnProcessToken();
  for (size_t r = 0; r < gathering->cards.size(); ++r) {
    const RankCard& card = gathering->cards[r];
    pids_.push_back(card.pid);
    lives_[r].watched = card.pid != 0 && !(card.process == own);
  }
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

void Peers::Meet(int rank, const RankCard& card) {
  const bool own = card.process == OwnProcessToken();
  bool ended = false;
  UniqueFd pidfd;  // where none can be had, for want of descriptors too, the lock tells the end
  if (!own) pidfd = PidFdOf(static_cast<pid_t>(card.pid), card.pid_namespace, &ended);
  std::lock_guard<std::mutex> lock(mutex_);
  if (pids_[rank] != card.pid) ended_[rank] = false;  // not the one that was expected
  ended_[rank] = ended_[rank] || ended;
  pids_[rank] = card.pid;
  pidfds_[rank] = std::move(pidfd);
  lives_[rank].watched = !own;
}

void Peers::Refresh() {
  std::lock_guard<std::mutex> lock(mutex_);
  CheckEnded(pidfds_, &ended_);
  for (size_t r = 0; r < lives_.size(); ++r) {
    if (lives_[r].watched && !ended_[r]) RefreshLife(static_cast<int>(r));
  }
}

void Peers::RefreshLife(int rank) {
  Life& life = lives_[rank];
  // A rank that leaves says so before it lets its lock go.
  if (life_lock_ == nullptr || life_lock_->IsHeld(rank)) return;
  if (HasLeft(segment_->rank(rank))) return;
  if (!life.lost) {
    life.lost = true;
    life.believed_dead = Deadline::After(pidfds_[rank].valid() ? kBelieve_ms : 0);
  }
  if (!life.believed_dead.Passed()) return;
  life.replaced = pidfds_[rank].valid();
  ended_[rank] = true;
}

bool Peers::Ended(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ended_[rank];
}

const char* Peers::HowItEnded(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lives_[rank].replaced ? " has died: its process runs another program now (exec)"
                               : " has died";
}

std::string Peers::Name(int rank) const {
  const int64_t number = pid(rank);
  return std::to_string(rank) +
         (number != 0 ? " (pid " + std::to_string(number) + ")" : " (which has not joined)");
}

}  // namespace occl
