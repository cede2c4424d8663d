// Which ranks of a communicator have joined, and how this rank gets at their buffers.
//
// Either all have joined before the communicator is used, or each joins when it comes: it writes
// its card into the control segment and sets `joined`. A rank looks for another when it first needs
// it (Reach), and for all of them before its first collective (AllReached).
#ifndef OCCL_CORE_PRESENCE_H_
#define OCCL_CORE_PRESENCE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "occl/bootstrap/keeper.h"
#include "occl/core/bells.h"
#include "occl/core/peers.h"
#include "occl/transport/control_segment.h"
#include "occl/transport/direct/peer_arena.h"

namespace occl {

// Thread-safe, apart from the constructor and Join.
class Presence {
 public:
  // With arenas: all ranks have joined, and `direct` says whether every rank could map all of them.
  // Without: none has joined.
  Presence(ControlSegment* segment, int rank, std::string name,
           std::vector<std::shared_ptr<PeerArena>> arenas, bool direct);

  // This rank joins: the others find it from now on. `keeper` may be NULL.
  Status Join(const RankCard& card, const LeaderInfo& leader, std::shared_ptr<Keeper> keeper,
              Bells* bells, Peers* peers);

  // True once `rank` has joined and is known here; then arena(rank) and the peer's process are.
  // Never blocks for a rank that has not joined.
  bool Reach(int rank) { return reached_[rank].load(std::memory_order_acquire) || ReachSlow(rank); }
  // It has joined, here or with all others at once.
  bool HasCome(int rank) const {
    return at_once_ || segment_.rank(rank).joined.load(std::memory_order_acquire) == 1;
  }
  // True once all ranks have joined and have told whether they map all others. Then direct()
  // counts.
  bool AllReached() { return complete_.load(std::memory_order_acquire) || AllReachedSlow(); }
  // "1, 3 (pid 4711)": the ranks that have not joined, or do not answer; if there are none, those
  // that have not come to where they need all others.
  std::string Missing() const;

  // Every rank has mapped every arena. After AllReached.
  bool direct() const { return direct_; }
  // How `rank`, which may not have joined, reads this rank's buffers.
  Reading ReadingOf(int rank) const;
  // NULL: not mapped. After Reach.
  const PeerArena* arena(int rank) const { return arenas_[rank].get(); }
  // Who brought the ranks together.
  const LeaderInfo& leader() const { return leader_; }

 private:
  bool ReachSlow(int rank);
  std::string List(const std::function<bool(int)>& which) const;
  bool AllReachedSlow();

  // Attempts to map the device of a rank that has joined.
  struct Opening {
    bool begun = false;
    Deadline next;  // when to try again
    Deadline last;  // when to give up
  };

  ControlSegment& segment_;
  const int rank_;
  const std::string name_;
  const bool at_once_;
  Bells* bells_ = nullptr;
  Peers* peers_ = nullptr;
  LeaderInfo leader_ = {};
  std::shared_ptr<Keeper> keeper_;

  std::mutex mutex_;                                // one thread at a time reaches
  std::vector<std::shared_ptr<PeerArena>> arenas_;  // [r] constant once reached_[r]
  std::vector<Opening> openings_;                   // while not reached_
  std::unique_ptr<std::atomic<bool>[]> reached_;
  bool direct_ = false;  // constant once complete_
  std::atomic<bool> complete_{false};
};

// Each rank r with ranks[r].pid != 0 has not joined here and will not: what needs it fails. The
// rank says so itself, who makes the segment for it, or who has found it in the store: all in the
// same bytes.
void MarkLeft(ControlSegment* segment, const std::vector<LeftRank>& ranks);

class Comm;
// Blocks until all ranks have joined. `meeting`, where they meet, tells of ranks that cannot come;
// NULL: the deadline does. occlTimeout names those that did not come.
Status AwaitRanks(Comm& comm, Meeting* meeting, const Deadline& deadline);
// The same with the communicator's own deadline for init. Two loads once they have joined.
Status AwaitAllRanks(Comm& comm);
// Blocks until all ranks but those of `excluded` have joined; the communicator may have failed.
Status AwaitOthers(Comm& comm, const std::vector<bool>& excluded, const Deadline& deadline);

}  // namespace occl

#endif  // OCCL_CORE_PRESENCE_H_
