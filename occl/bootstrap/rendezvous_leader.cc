#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "occl/base/poll_all.h"
#include "occl/bootstrap/local_socket.h"
#include "occl/bootstrap/rendezvous.h"

namespace occl {
namespace {

constexpr int64_t kHelloTimeout_ms = 5000;         // from connect to hello
constexpr int64_t kFailureCheckInterval_ms = 100;  // all are told of a death within a second
constexpr size_t kMaxStrangers = 64;               // connections that have not said hello yet
constexpr int64_t kSendTimeout_ms = 10000;
constexpr int kMostAtOnce = 256;
constexpr int64_t kTell_ms = 100;  // why init has failed, to those who have not said hello

struct Member {
  UniqueFd socket;
  UniqueFd pidfd;
  RankCard card;
  bool mapped = false;
};

struct Stranger {
  UniqueFd socket;
  Deadline deadline;
};

class Leader {
 public:
  Leader(Meeting* meeting, const RendezvousOptions& options)
      : meeting_(meeting), options_(options), members_(options.nranks) {}

  Status Lead(Gathering* gathering) {
    Status status = LeadUntilGo(gathering);
    if (!status.ok()) {
      TellAll(status);
      meeting_->ReportEnd(info_, status);
      TellThoseWhoWait(status);
    }
    return status;
  }

 private:
  Status LeadUntilGo(Gathering* gathering);
  Status AcceptAll();
  Status ReadHellos(const std::vector<pollfd>& polls);
  Status ReadHello(Stranger* stranger);
  Status Admit(UniqueFd socket, const Hello& hello);
  Status ShareSegment(Gathering* gathering);
  Status SendDescriptors(const UniqueFd& socket, const UniqueFd& segment_fd);
  Status CollectMapped(bool* direct);
  // Polls the listener, strangers and members; true in *ready for what can be read.
  Status Poll(std::vector<pollfd>* polls);
  Status MissingRanks(const char* what) const;
  Status DeadMember(int rank) const;
  void TellAll(const Status& status);
  void TellThoseWhoWait(const Status& status);
  void TellStrangers(const Notice& notice, const Deadline& deadline);
  // From the listener; invalid if nobody waits there.
  Status Accept(UniqueFd* socket);

  Meeting* const meeting_;
  const RendezvousOptions& options_;
  LeaderInfo info_ = {};
  UniqueFd listener_;
  std::vector<Member> members_;  // by rank; [0] is this rank
  std::vector<Stranger> strangers_;
  size_t joined_ = 1;
  Deadline next_failure_check_;
};

Status Leader::LeadUntilGo(Gathering* gathering) {
  info_ = OwnLeaderInfo(options_.nranks, options_.rank);
  meeting_->ChooseAddress(&info_);
  OCCL_RETURN_IF_ERROR(
      Listen(PrintableText(info_.socket_name, sizeof(info_.socket_name)), &listener_));
  OCCL_RETURN_IF_ERROR(meeting_->Publish(info_));
  members_[0].card = OwnCard(options_);
  members_[0].pidfd = PidFdOfSelf();
  OCCL_RETURN_IF_ERROR(AcceptAll());
  listener_.Reset();
  OCCL_RETURN_IF_ERROR(ShareSegment(gathering));
  bool direct = true;
  OCCL_RETURN_IF_ERROR(options_.prepare(*gathering, &direct));
  OCCL_RETURN_IF_ERROR(CollectMapped(&direct));
  gathering->direct = direct;
  Notice go = MakeNotice(Status());
  go.direct = direct;
  for (int r = 1; r < options_.nranks; ++r) {
    // A rank that has died by now is found by its pidfd.
    static_cast<void>(
        SendMessage(members_[r].socket, &go, sizeof(go), {}, Deadline::After(kSendTimeout_ms))
            .ok());
  }
  return Status();
}

Status Leader::Poll(std::vector<pollfd>* polls) {
  polls->clear();
  polls->push_back({listener_.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) polls->push_back({stranger.socket.get(), POLLIN, 0});
  for (const Member& member : members_) {
    // Hang-up needs no request; members have nothing to say before the segment is shared.
    polls->push_back({member.socket.get(), static_cast<short>(listener_.valid() ? 0 : POLLIN), 0});
  }
  if (PollAll(polls, options_.deadline.RemainingMs(kFailureCheckInterval_ms)) < 0 &&
      errno != EINTR) {
    return SystemError(errno, "poll of the bootstrap sockets");
  }
  if (next_failure_check_.Passed()) {
    next_failure_check_ = Deadline::After(kFailureCheckInterval_ms);
    OCCL_RETURN_IF_ERROR(meeting_->CheckFailure(info_));
  }
  return Status();
}

Status Leader::AcceptAll() {
  next_failure_check_ = Deadline::After(kFailureCheckInterval_ms);
  std::vector<pollfd> polls;
  while (joined_ < members_.size()) {
    OCCL_RETURN_IF_ERROR(Poll(&polls));
    const size_t first_member = 1 + strangers_.size();
    for (size_t r = 1; r < members_.size(); ++r) {
      if ((polls[first_member + r].revents & (POLLHUP | POLLERR)) != 0) {
        return DeadMember(static_cast<int>(r));
      }
    }
    OCCL_RETURN_IF_ERROR(ReadHellos(polls));
    for (int i = 0; i < kMostAtOnce; ++i) {
      Stranger stranger = {UniqueFd(), Deadline::After(kHelloTimeout_ms)};
      OCCL_RETURN_IF_ERROR(Accept(&stranger.socket));
      if (!stranger.socket.valid()) break;
      if (Readable(stranger.socket)) {  // as a rule: who comes says hello at once
        OCCL_RETURN_IF_ERROR(ReadHello(&stranger));
        continue;
      }
      if (strangers_.size() >= kMaxStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(stranger));
    }
    if (options_.deadline.Passed()) return MissingRanks("did not come");
  }
  strangers_.clear();
  return Status();
}

// Those who have not said hello stay, also where this fails: they are told why.
Status Leader::ReadHellos(const std::vector<pollfd>& polls) {
  Status status;
  std::vector<Stranger> remaining;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    if (status.ok() && polls[1 + i].revents != 0) {
      status = ReadHello(&strangers_[i]);
    } else if (!strangers_[i].deadline.Passed()) {
      remaining.push_back(std::move(strangers_[i]));
    }
  }
  strangers_ = std::move(remaining);
  return status;
}

Status Leader::Accept(UniqueFd* socket) {
  while (true) {
    Status shortage;
    *socket = AcceptSameUser(listener_, &shortage);
    // The kernel says so before it looks whether anybody waits.
    if (shortage.ok() || !Readable(listener_)) return Status();
    if (strangers_.empty()) {
      return Error(shortage.code(), "init of %s: rank 0 (pid %d) cannot let others in: %s",
                   options_.name, static_cast<int>(getpid()), shortage.message().c_str());
    }
    strangers_.erase(strangers_.begin());
  }
}

// Whoever sends anything but a hello with the right secret is turned away: it may be a confused
// process. A rank that knows the secret and disagrees fails the init on all ranks.
Status Leader::ReadHello(Stranger* stranger) {
  Hello hello;
  Status got = ReceiveMessage(stranger->socket, &hello, sizeof(hello), nullptr, Deadline::After(0));
  if (!got.ok() || hello.magic != kBootstrapMagic || !SameSecret(hello.secret, info_.secret)) {
    return Status();
  }
  return Admit(std::move(stranger->socket), hello);
}

Status Leader::Admit(UniqueFd socket, const Hello& hello) {
  const RankCard& card = hello.card;
  Status refusal = CheckAgreement(options_.name, members_[0].card, card);
  if (refusal.ok() && (card.rank < 1 || card.rank >= options_.nranks)) {
    refusal = Error(occlMismatch, "init of %s: a second process (pid %lld) says it is rank %d",
                    options_.name, static_cast<long long>(card.pid), card.rank);
  } else if (refusal.ok() && members_[card.rank].socket.valid()) {
    refusal = Error(occlMismatch, "init of %s: processes %lld and %lld both say they are rank %d",
                    options_.name, static_cast<long long>(members_[card.rank].card.pid),
                    static_cast<long long>(card.pid), card.rank);
  }
  if (!refusal.ok()) {
    const Notice notice = MakeNotice(refusal);
    static_cast<void>(
        SendMessage(socket, &notice, sizeof(notice), {}, Deadline::After(kSendTimeout_ms)).ok());
    return refusal;
  }
  Member& member = members_[card.rank];
  member.pidfd = PidFdOfSocketPeer(socket.get());
  const int error = errno;
  member.socket = std::move(socket);
  member.card = card;
  ++joined_;
  if (!member.pidfd.valid() && (error == EMFILE || error == ENFILE || error == ENOMEM)) {
    // Without it nobody would notice that the rank dies.
    return SystemError(error, "init of %s: rank 0 (pid %d): a descriptor for rank %d",
                       options_.name, static_cast<int>(getpid()), card.rank);
  }
  return Status();
}

Status Leader::ShareSegment(Gathering* gathering) {
  UniqueFd segment_fd;
  OCCL_RETURN_IF_ERROR(ControlSegment::Create(options_.nranks, &segment_fd));
  OCCL_RETURN_IF_ERROR(ControlSegment::Map(segment_fd, options_.nranks, &gathering->segment));
  OCCL_RETURN_IF_ERROR(LifeLock::Take(segment_fd, options_.rank, &gathering->life_lock));
  for (int r = 0; r < options_.nranks; ++r) {
    Member& member = members_[r];
    member.card.has_pidfd = member.pidfd.valid();
    std::memcpy(gathering->segment->rank(r).card, &member.card, sizeof(RankCard));
    gathering->cards.push_back(member.card);
  }
  for (int r = 1; r < options_.nranks; ++r) {
    Status sent = SendDescriptors(members_[r].socket, segment_fd);
    if (sent.code() == occlRemoteError) return DeadMember(r);
    OCCL_RETURN_IF_ERROR(sent);
  }
  const ProcessToken own = OwnProcessToken();
  for (Member& member : members_) {
    gathering->pidfds.push_back(member.card.process == own ? UniqueFd() : std::move(member.pidfd));
  }
  return Status();
}

Status Leader::SendDescriptors(const UniqueFd& socket, const UniqueFd& segment_fd) {
  const Notice welcome = MakeNotice(Status());
  const Deadline deadline = Deadline::After(kSendTimeout_ms);
  OCCL_RETURN_IF_ERROR(
      SendMessage(socket, &welcome, sizeof(welcome), {segment_fd.get()}, deadline));
  std::vector<int> batch;
  for (int r = 0; r < options_.nranks; ++r) {
    if (members_[r].pidfd.valid()) batch.push_back(members_[r].pidfd.get());
    if (batch.size() == kMaxFdsPerMessage || (r + 1 == options_.nranks && !batch.empty())) {
      OCCL_RETURN_IF_ERROR(SendMessage(socket, &welcome, sizeof(welcome), batch, deadline));
      batch.clear();
    }
  }
  return Status();
}

Status Leader::CollectMapped(bool* direct) {
  std::vector<pollfd> polls;
  for (size_t waiting = members_.size() - 1; waiting > 0;) {
    OCCL_RETURN_IF_ERROR(Poll(&polls));
    for (int r = 1; r < options_.nranks; ++r) {
      Member& member = members_[r];
      if (polls[1 + r].revents == 0 || member.mapped) continue;
      Notice notice;
      Status got =
          ReceiveMessage(member.socket, &notice, sizeof(notice), nullptr, Deadline::After(0));
      if (!got.ok()) return DeadMember(r);
      OCCL_RETURN_IF_ERROR(FromNotice(notice));
      *direct = *direct && notice.direct == 1;
      member.mapped = true;
      --waiting;
    }
    if (options_.deadline.Passed()) return MissingRanks("did not map the control segment");
  }
  return Status();
}

Status Leader::MissingRanks(const char* what) const {
  std::string missing;
  for (int r = 1; r < options_.nranks; ++r) {
    const bool there = listener_.valid() ? members_[r].socket.valid() : members_[r].mapped;
    if (there) continue;
    if (missing.size() > 200) {
      missing += ", ...";
      break;
    }
    missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return Error(occlTimeout, "init of %s with %d ranks: rank(s) %s %s in time", options_.name,
               options_.nranks, missing.c_str(), what);
}

Status Leader::DeadMember(int rank) const {
  return Error(occlRemoteError, "init of %s: rank %d (pid %lld) ended before init was complete",
               options_.name, rank, static_cast<long long>(members_[rank].card.pid));
}

void Leader::TellAll(const Status& status) {
  const Notice notice = MakeNotice(status);
  for (Member& member : members_) {
    if (!member.socket.valid()) continue;
    static_cast<void>(
        SendMessage(member.socket, &notice, sizeof(notice), {}, Deadline::After(0)).ok());
  }
}

// Who has connected and has not been let in would hear no more than that rank 0 has gone.
void Leader::TellThoseWhoWait(const Status& status) {
  if (!listener_.valid()) return;
  for (Member& member : members_) member.socket.Reset();  // descriptors, if that is what is missing
  const Notice notice = MakeNotice(status);
  const Deadline deadline = Deadline::After(kTell_ms);
  for (int i = 0; i < kMostAtOnce && !deadline.Passed(); ++i) {
    Stranger stranger;
    if (Accept(&stranger.socket).ok() && stranger.socket.valid()) {
      strangers_.push_back(std::move(stranger));
      TellStrangers(notice, Deadline::After(0));
    } else if (strangers_.empty()) {
      return;
    } else {
      TellStrangers(notice, deadline);
    }
  }
}

// Those who say hello by then, or who do it until somebody else comes.
void Leader::TellStrangers(const Notice& notice, const Deadline& deadline) {
  std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}};
  for (const Stranger& stranger : strangers_) polls.push_back({stranger.socket.get(), POLLIN, 0});
  if (PollAll(&polls, deadline.RemainingMs(kTell_ms)) <= 0) return;
  std::vector<Stranger> remaining;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    const UniqueFd& socket = strangers_[i].socket;
    Hello hello;
    if (polls[1 + i].revents == 0) {
      remaining.push_back(std::move(strangers_[i]));
    } else if (ReceiveMessage(socket, &hello, sizeof(hello), nullptr, Deadline::After(0)).ok() &&
               hello.magic == kBootstrapMagic && SameSecret(hello.secret, info_.secret)) {
      static_cast<void>(SendMessage(socket, &notice, sizeof(notice), {}, Deadline::After(0)).ok());
    }
  }
  strangers_ = std::move(remaining);
}

}  // namespace

Status LeadRendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering) {
  return Leader(meeting, options).Lead(gathering);
}

}  // namespace occl
