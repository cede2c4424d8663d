#include "occl/core/derive.h"

#include <algorithm>
#include <cstring>

#include "occl/base/fence.h"
#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

// What each rank of the parent posts; the leader of each new communicator listens at its address.
struct Invitation {
  int32_t color;
  int32_t key;
  Members members;
  char socket_name[kSocketNameBytes];
  Secret secret;
};
static_assert(sizeof(Invitation) <= kMailboxBytes);

Invitation MakeInvitation(int color, int key, const std::string& members) {
  Invitation invitation = {};
  invitation.color = color;
  invitation.key = key;
  invitation.members = MakeMembers(members);
  const std::string name = RandomSocketName();
  std::memcpy(invitation.socket_name, name.c_str(), name.size() + 1);
  invitation.secret = RandomSecret();
  return invitation;
}

struct Exchange {
  Comm& parent;
  std::string what;  // for messages: "split #2"
  int mailbox;
  uint64_t generation;
  std::vector<bool> takes_part;
  bool is_split;  // else a shrink: the parent has failed, and generations have no order
  Deadline deadline;
};

Status CheckRank(const Exchange& exchange, int rank) {
  const std::string gone = exchange.parent.TellGone(rank);
  if (gone.empty()) return Status();
  return Error(occlRemoteError, "%s of communicator %s: %s", exchange.what.c_str(),
               exchange.parent.name(), gone.c_str());
}

const Mailbox& BoxOf(const Exchange& exchange, int rank) {
  return exchange.parent.block(rank).mailboxes[exchange.mailbox];
}

bool HasPosted(const Exchange& exchange, int rank) {
  return BoxOf(exchange, rank).generation.load(std::memory_order_acquire) == exchange.generation;
}

Status CheckGivenUp(const Exchange& exchange, int rank) {
  const uint64_t found = BoxOf(exchange, rank).generation.load(std::memory_order_acquire);
  if (!exchange.is_split || found <= exchange.generation) return Status();
  return Error(occlRemoteError,
               "%s of communicator %s: rank %s has given it up, and is in split #%llu",
               exchange.what.c_str(), exchange.parent.name(),
               exchange.parent.peers.Name(rank).c_str(), static_cast<unsigned long long>(found));
}

// Of the ranks that `counts` says yes to, one that has died, else one that has left: perhaps
// because it was told of the other's death.
template <typename F>
Status CheckThose(const Exchange& exchange, F counts) {
  Status left;
  for (int r = 0; r < exchange.parent.nranks(); ++r) {
    if (!exchange.takes_part[r] || !counts(r)) continue;
    const Status gone = CheckRank(exchange, r);
    if (!gone.ok() && exchange.parent.HasDied(r)) return gone;
    if (left.ok()) left = gone;
  }
  return left;
}

// Of those that have not come, which ends it for all.
Status CheckAbsent(const Exchange& exchange) {
  return CheckThose(exchange, [&](int rank) { return !HasPosted(exchange, rank); });
}

// Also of ranks that are not waited for yet: the one that is may have been told of their end, and
// not come for that, or only be late. Who has posted is needed where it is to be in `own` group.
Status CheckMissing(const Exchange& exchange, const Invitation& own) {
  return CheckThose(exchange, [&](int rank) {
    if (!HasPosted(exchange, rank)) return true;
    Invitation other;
    std::memcpy(&other, BoxOf(exchange, rank).bytes, sizeof(other));
    return own.color != OCCL_SPLIT_NOCOLOR && other.color == own.color;
  });
}

Status AwaitPosted(const Exchange& exchange, const Invitation& own, int rank, WaitNotice* notice) {
  constexpr int64_t kSlice_ns = 50'000'000;
  Comm& parent = exchange.parent;
  while (!HasPosted(exchange, rank)) {
    const uint32_t announced = parent.bells.Announce();
    if (!HasPosted(exchange, rank)) parent.bells.Sleep(announced, kSlice_ns);
    parent.bells.Leave();
    parent.peers.Refresh();
    if (HasPosted(exchange, rank)) break;
    if (exchange.is_split && !parent.good()) return parent.failure();
    OCCL_RETURN_IF_ERROR(CheckMissing(exchange, own));
    OCCL_RETURN_IF_ERROR(CheckGivenUp(exchange, rank));
    if (exchange.deadline.Passed()) {
      const std::string waits = WaitBoard::Read(&parent.segment(), rank);
      return Error(occlTimeout, "%s of communicator %s: rank %s did not come in time%s%s",
                   exchange.what.c_str(), parent.name(), parent.peers.Name(rank).c_str(),
                   waits.empty() ? "" : ": it waits in ", waits.c_str());
    }
    notice->Show(exchange.what + " for rank(s) " + parent.peers.Name(rank) + " in communicator " +
                 parent.name());
  }
  return Status();
}

void Post(const Exchange& exchange, const Invitation& own) {
  Comm& parent = exchange.parent;
  Mailbox& box = parent.block(parent.rank()).mailboxes[exchange.mailbox];
  box.generation.exchange(0, std::memory_order_acq_rel);  // for who is late and reads it still
  box.size = sizeof(own);
  std::memcpy(box.bytes, &own, sizeof(own));
  box.generation.store(exchange.generation, std::memory_order_release);
  parent.bells.RingAll();
}

// Posts `own` and collects everybody's. Does not post where it fails at once: ranks that come late
// to an earlier one, which this rank was told not to wait for, still find what it posted for that.
Status Trade(const Exchange& exchange, const Invitation& own,
             std::vector<Invitation>* invitations) {
  Comm& parent = exchange.parent;
  if (exchange.is_split && !parent.good()) return parent.failure();
  parent.peers.Refresh();
  OCCL_RETURN_IF_ERROR(CheckAbsent(exchange));
  Post(exchange, own);
  invitations->assign(parent.nranks(), own);
  WaitNotice notice(&parent.waits, WaitNotice::What::kCollective);
  for (int r = 0; r < parent.nranks(); ++r) {
    if (!exchange.takes_part[r] || r == parent.rank()) continue;
    do {
      OCCL_RETURN_IF_ERROR(AwaitPosted(exchange, own, r, &notice));
      std::memcpy(&(*invitations)[r], BoxOf(exchange, r).bytes, sizeof(Invitation));
      LoadFence();
    } while (!HasPosted(exchange, r));  // it was written again meanwhile
  }
  return Status();
}

// The leader's address is known from the exchange; only its end remains to be watched.
class InvitationMeeting final : public Meeting {
 public:
  InvitationMeeting(const Exchange& exchange, const std::vector<Invitation>& invitations,
                    std::vector<int> members)
      : exchange_(exchange), invitations_(invitations), members_(std::move(members)) {}

  void ChooseAddress(LeaderInfo* info) override { FillAddress(info); }
  Status Publish(const LeaderInfo&) override { return Status(); }
  Status Find(LeaderInfo* info, const Deadline&) override {
    *info = {};
    info->magic = kBootstrapMagic;
    info->version = OCCL_VERSION;
    info->nranks = static_cast<int32_t>(members_.size());
    info->process.pid = exchange_.parent.peers.pid(members_[0]);
    info->host = OwnHostId();
    FillAddress(info);
    exchange_.parent.peers.Refresh();
    return CheckRank(exchange_, members_[0]);
  }
  void ReportFailure(const LeaderInfo&, const Status&) override {}
  Status ComesFirst(bool*, bool*) override {
    return Error(occlInternalError, "the ranks of %s join together", exchange_.what.c_str());
  }
  Status CheckFailure(const LeaderInfo&) override {
    exchange_.parent.peers.Refresh();
    for (int member : members_) {
      if (member == exchange_.parent.rank()) continue;
      OCCL_RETURN_IF_ERROR(CheckRank(exchange_, member));
    }
    return Status();
  }

 private:
  void FillAddress(LeaderInfo* info) const {
    const Invitation& leader = invitations_[members_[0]];
    std::memcpy(info->socket_name, leader.socket_name, sizeof(info->socket_name));
    info->secret = leader.secret;
  }

  const Exchange& exchange_;
  const std::vector<Invitation>& invitations_;
  const std::vector<int> members_;  // ranks of the parent, in the order of the new ranks
};

// "0 (rank 1 (pid 7)), 1 (rank 3 (pid 9))": the new ranks, with those of the parent.
std::string NameMembers(const Exchange& exchange, const std::vector<int>& members) {
  constexpr size_t kMostText = 400;
  std::string names;
  for (size_t i = 0; i < members.size(); ++i) {
    if (names.size() > kMostText) return names + ", ...";
    names += (i == 0 ? "" : ", ") + std::to_string(i) + " (rank " +
             exchange.parent.peers.Name(members[i]) + ")";
  }
  return names;
}

// Each of them finds the same two.
Status CheckMembers(const Exchange& exchange, const std::vector<Invitation>& invitations,
                    const std::vector<int>& members) {
  const Members& first = invitations[members[0]].members;
  for (int member : members) {
    const Members& other = invitations[member].members;
    if (other.digest == first.digest) continue;
    const Peers& peers = exchange.parent.peers;
    return Error(occlMismatch,
                 "%s of communicator %s: rank %s was told members = [%s], rank %s members = [%s]",
                 exchange.what.c_str(), exchange.parent.name(), peers.Name(members[0]).c_str(),
                 PrintableText(first.text, sizeof(first.text)).c_str(), peers.Name(member).c_str(),
                 PrintableText(other.text, sizeof(other.text)).c_str());
  }
  return Status();
}

Status CreateFrom(const Exchange& exchange, const std::vector<Invitation>& invitations,
                  const std::vector<int>& members, CommSettings settings, Ref<Comm>* created) {
  OCCL_RETURN_IF_ERROR(CheckMembers(exchange, invitations, members));
  const int own = exchange.parent.rank();
  settings.nranks = static_cast<int>(members.size());
  settings.rank =
      static_cast<int>(std::find(members.begin(), members.end(), own) - members.begin());
  InvitationMeeting meeting(exchange, invitations, members);
  const Status made = Comm::Create(settings, &meeting, created);
  if (made.ok()) return made;
  return Error(made.code(), "%s of communicator %s into ranks %s: %s", exchange.what.c_str(),
               exchange.parent.name(), NameMembers(exchange, members).c_str(),
               made.message().c_str());
}

}  // namespace

Status SplitComm(Comm& parent, int color, int key, CommSettings settings, Ref<Comm>* created) {
  // Two mailboxes in turn: a rank writes one again only after all have come to the split between.
  const uint64_t number = parent.NextSplit();
  const Exchange exchange = {parent,
                             "split #" + std::to_string(number),
                             static_cast<int>(number % 2),
                             number,
                             std::vector<bool>(parent.nranks(), true),
                             true,
                             Deadline::After(settings.init_timeout_ms)};
  std::vector<Invitation> invitations;
  OCCL_RETURN_IF_ERROR(Trade(exchange, MakeInvitation(color, key, settings.members), &invitations));
  if (color == OCCL_SPLIT_NOCOLOR) return Status();
  std::vector<int> members;
  for (int r = 0; r < parent.nranks(); ++r) {
    if (invitations[r].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return invitations[a].key < invitations[b].key; });
  return CreateFrom(exchange, invitations, members, std::move(settings), created);
}

Status ShrinkComm(Comm& parent, const std::vector<bool>& excluded, CommSettings settings,
                  Ref<Comm>* created) {
  // Ranks that exclude others, or try for another time, do not meet.
  const uint64_t number = parent.NextShrink();
  uint64_t generation = number;
  std::vector<bool> takes_part;
  std::vector<int> members;
  for (int r = 0; r < parent.nranks(); ++r) {
    takes_part.push_back(!excluded[r]);
    if (!excluded[r]) members.push_back(r);
    generation = generation * 1'000'003 + (excluded[r] ? 2 : 1);
  }
  const Exchange exchange = {
      parent, "shrink #" + std::to_string(number),      2, generation, takes_part,
      false,  Deadline::After(settings.init_timeout_ms)};
  std::vector<Invitation> invitations;
  OCCL_RETURN_IF_ERROR(Trade(exchange, MakeInvitation(0, 0, settings.members), &invitations));
  return CreateFrom(exchange, invitations, members, std::move(settings), created);
}

}  // namespace occl
