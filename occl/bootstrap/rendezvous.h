// How the ranks of a new communicator come together: rank 0 (the leader) listens on a socket, the
// others connect, prove that they know the secret and say who they are; the leader makes the
// control segment and passes it on. Ends for all ranks alike: if one cannot join, all are told why.
#ifndef OCCL_BOOTSTRAP_RENDEZVOUS_H_
#define OCCL_BOOTSTRAP_RENDEZVOUS_H_

#include <functional>
#include <memory>
#include <vector>

#include "occl/base/clock.h"
#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/messages.h"
#include "occl/transport/control_segment.h"
#include "occl/transport/life_lock.h"

namespace occl {

// A rank that has gone.
struct LeftRank {
  int64_t pid = 0;  // 0: it has not
  bool had_joined = false;
  bool died = false;  // its process has ended, and had not said that the rank goes
};

// How the leader's address gets to the other ranks, and news of ranks that cannot reach it back.
class Meeting {
 public:
  virtual ~Meeting() = default;
  // The socket name and secret to use.
  virtual void ChooseAddress(LeaderInfo* info) = 0;
  virtual Status Publish(const LeaderInfo& info) = 0;
  // The address that is valid now. Called again while nobody listens there: what was found may be
  // left from an earlier communicator.
  virtual Status Find(LeaderInfo* info, const Deadline& deadline) = 0;
  virtual void ReportFailure(const LeaderInfo& info, const Status& status) = 0;
  // The next init may use the same place, and its ranks find what this one has left there.
  virtual bool IsReused() const { return false; }
  // By the leader, for those who come later.
  virtual void ReportEnd(const LeaderInfo& /*info*/, const Status& /*status*/) {}
  // Called by the leader now and then: why a rank cannot come.
  virtual Status CheckFailure(const LeaderInfo& info) = 0;
  // Why somebody has ended the communicator without being in it; ok: nobody has.
  virtual Status CheckAborted() { return Status(); }
  // True for exactly one of the ranks that ask; *some_left: FindLeft has something to tell. Only
  // for ranks that join without waiting.
  virtual Status ComesFirst(bool* first, bool* some_left) = 0;
  // Sets (*ranks)[r] for each rank that has said that it will not come, if there is one.
  virtual Status FindLeft(std::vector<LeftRank>* /*ranks*/) { return Status(); }
  // Of a rank that has got the segment of the leader's generation and is not the leader: for
  // FindGone.
  virtual Status SayJoined(const LeaderInfo& /*leader*/, int /*rank*/) { return Status(); }
  // As FindLeft, and for each rank that has joined an earlier generation than `generation`: all of
  // them have gone.
  virtual Status FindGone(uint32_t /*generation*/, std::vector<LeftRank>* /*ranks*/) {
    return Status();
  }
  // True for exactly one of the ranks that ask, of those that have found that all who came to the
  // leader's generation of the communicator's segment have gone: it makes the next.
  virtual Status Inherits(const LeaderInfo& /*leader*/, bool* inherits) {
    *inherits = false;
    return Status();
  }
};

struct Gathering {
  std::shared_ptr<ControlSegment> segment;
  std::unique_ptr<LifeLock> life_lock;  // this rank's
  std::vector<RankCard> cards;
  std::vector<UniqueFd> pidfds;  // invalid for this process and where unknown
  bool direct = false;           // every rank has mapped every arena
};

struct RendezvousOptions {
  int nranks;
  int rank;
  orIpcDeviceHandle_t device;
  Deadline deadline;
  const char* name;  // of the communicator, for messages
  Members members;
  // Called once segment, cards and pidfds are there; opens the peers' arenas. Returns an error to
  // fail init on all ranks; *direct = false where arenas cannot be mapped.
  std::function<Status(const Gathering&, bool* direct)> prepare;
};

Status Rendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering);

// Shared by both sides.
RankCard OwnCard(const RendezvousOptions& options);
// All but the address.
LeaderInfo OwnLeaderInfo(int nranks, int rank);
// A socket name and a secret that nobody can guess.
void ChooseRandomAddress(LeaderInfo* info);
// Connects to the rank that brings the others together. A refused connection says that what was
// found is left from an earlier communicator, or that this rank runs elsewhere. With `refused`: or
// that all have gone; then *socket stays invalid, and *refused is true.
Status ConnectToLeader(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                       UniqueFd* socket, bool* refused = nullptr);
// What the other ranks are told of `reason`, for which this rank does not come.
Status CannotTakePart(const char* name, int rank, const Status& reason);
Status LeaderGone(const RendezvousOptions& options, const LeaderInfo& info);
Status LeaderSilent(const RendezvousOptions& options, const LeaderInfo& info);
Status LeadRendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering);
Status JoinRendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_RENDEZVOUS_H_
