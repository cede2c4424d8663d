#include "occl/bootstrap/rendezvous.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

constexpr int64_t kConnectRetry_ns = 5'000'000;
// How much longer than its own deadline a rank waits for rank 0, so that rank 0's message, which
// names the missing ranks, comes first.
constexpr int64_t kGrace_ms = 2000;

// Remembers that `rank`, of this process, knows of the leader's attempt that it has failed. False:
// it did already. It then tries again, and comes before the leader, who makes another attempt.
bool FirstTold(const LeaderInfo& leader, int rank) {
  constexpr size_t kMostKnown = 256;
  static std::mutex mutex;
  static auto* const known = new std::deque<std::pair<Secret, int>>;  // used while the process ends
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [secret, told] : *known) {
    if (told == rank && SameSecret(secret, leader.secret)) return false;
  }
  known->emplace_back(leader.secret, rank);
  if (known->size() > kMostKnown) known->pop_front();
  return true;
}

Status CheckLeader(const RendezvousOptions& options, const LeaderInfo& info) {
  if (info.magic != kBootstrapMagic) {
    return Error(occlMismatch, "init of %s: what the leading rank has published is not OCCL's",
                 options.name);
  }
  if (info.version != OCCL_VERSION) {
    return Error(occlMismatch, "init of %s: rank %d has OCCL %u, rank %d has OCCL %d", options.name,
                 info.rank, info.version, options.rank, OCCL_VERSION);
  }
  const HostId own = OwnHostId();
  if (!info.host.SameAs(own)) {
    return Error(
        occlNotSupported,
        "init of %s: rank %d runs on host %s, rank %d on host %s (or in a network namespace "
        "of its own): ranks on several hosts are not supported",
        options.name, info.rank, PrintableText(info.host.name, sizeof(info.host.name)).c_str(),
        options.rank, own.name);
  }
  return Status();
}

// Why the leader, who has closed the connection, does not answer.
Status WhyGone(Meeting* meeting, const RendezvousOptions& options, const LeaderInfo& info) {
  const Status told = meeting->CheckFailure(info);
  return told.ok() ? LeaderGone(options, info) : told;
}

Status ReceiveNotice(Meeting* meeting, const UniqueFd& socket, const RendezvousOptions& options,
                     const LeaderInfo& info, std::vector<UniqueFd>* fds, Notice* notice) {
  const int64_t remaining_ns = options.deadline.RemainingNs();
  const Deadline deadline = remaining_ns == INT64_MAX
                                ? Deadline()
                                : Deadline::After(remaining_ns / 1'000'000 + kGrace_ms);
  Status got = ReceiveMessage(socket, notice, sizeof(*notice), fds, deadline);
  if (got.code() == occlRemoteError) return WhyGone(meeting, options, info);
  if (got.code() == occlTimeout) return LeaderSilent(options, info);
  OCCL_RETURN_IF_ERROR(got);
  return FromNotice(*notice);
}

Status ReceiveSegment(Meeting* meeting, const UniqueFd& socket, const RendezvousOptions& options,
                      const LeaderInfo& info, Gathering* gathering) {
  Notice notice;
  std::vector<UniqueFd> fds;
  OCCL_RETURN_IF_ERROR(ReceiveNotice(meeting, socket, options, info, &fds, &notice));
  if (fds.size() != 1) {
    return Error(occlInternalError, "init of %s: rank 0 sent %zu descriptors instead of a segment",
                 options.name, fds.size());
  }
  OCCL_RETURN_IF_ERROR(ControlSegment::Map(fds[0], options.nranks, &gathering->segment));
  OCCL_RETURN_IF_ERROR(LifeLock::Take(fds[0], options.rank, &gathering->life_lock));
  size_t expected = 0;
  for (int r = 0; r < options.nranks; ++r) {
    RankCard card;
    std::memcpy(&card, gathering->segment->rank(r).card, sizeof(card));
    gathering->cards.push_back(card);
    if (card.rank != r) return Error(occlInternalError, "init: the card of rank %d is wrong", r);
    expected += card.has_pidfd == 1 ? 1 : 0;
  }
  fds.clear();
  while (fds.size() < expected) {
    const size_t before = fds.size();
    OCCL_RETURN_IF_ERROR(ReceiveNotice(meeting, socket, options, info, &fds, &notice));
    if (fds.size() == before || fds.size() > expected) {
      return Error(occlInternalError, "init: %zu process descriptors came instead of %zu",
                   fds.size(), expected);
    }
  }
  const ProcessToken own = OwnProcessToken();
  size_t next = 0;
  for (const RankCard& card : gathering->cards) {
    UniqueFd pidfd;
    if (card.has_pidfd == 1) pidfd = std::move(fds[next++]);
    if (card.process == own) pidfd.Reset();
    gathering->pidfds.push_back(std::move(pidfd));
  }
  return Status();
}

}  // namespace

Status CannotTakePart(const char* name, int rank, const Status& reason) {
  return Error(reason.code(), "init of %s: rank %d (pid %d) cannot take part: %s", name, rank,
               static_cast<int>(getpid()), reason.message().c_str());
}

Status LeaderGone(const RendezvousOptions& options, const LeaderInfo& info) {
  return Error(occlRemoteError,
               "init of %s: rank %d (pid %lld) ended, or gave up, before init was complete",
               options.name, info.rank, static_cast<long long>(info.process.pid));
}

Status LeaderSilent(const RendezvousOptions& options, const LeaderInfo& info) {
  return Error(occlTimeout,
               "init of %s: rank %d (pid %lld), which brings the ranks together, did not answer in "
               "time",
               options.name, info.rank, static_cast<long long>(info.process.pid));
}

Status ConnectToLeader(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                       UniqueFd* socket, bool* refused) {
  while (true) {
    OCCL_RETURN_IF_ERROR(meeting->Find(info, options.deadline));
    const std::string name = PrintableText(info->socket_name, sizeof(info->socket_name));
    Status connected = Connect(name, socket);
    if (connected.ok()) return CheckLeader(options, *info);
    if (connected.code() != occlRemoteError && connected.code() != occlTimeout) return connected;
    Status same = CheckLeader(options, *info);
    if (same.code() == occlNotSupported) {
      meeting->ReportFailure(*info, same);
      return same;
    }
    const Status told = meeting->CheckFailure(*info);
    const bool may_be_old = meeting->IsReused() && refused == nullptr;
    if (!told.ok() && (!may_be_old || FirstTold(*info, options.rank))) return told;
    if (refused != nullptr && connected.code() == occlRemoteError) {
      *refused = true;
      return Status();
    }
    if (options.deadline.Passed()) {
      return Error(occlTimeout, "init of %s: rank %d could not reach rank %d (pid %lld) in time",
                   options.name, options.rank, info->rank,
                   static_cast<long long>(info->process.pid));
    }
    const timespec pause = {0, kConnectRetry_ns};
    nanosleep(&pause, nullptr);
  }
}

LeaderInfo OwnLeaderInfo(int nranks, int rank) {
  LeaderInfo info = {};
  info.magic = kBootstrapMagic;
  info.version = OCCL_VERSION;
  info.nranks = nranks;
  info.rank = rank;
  info.process = OwnProcessId();
  info.host = OwnHostId();
  info.processors = OwnProcessors();
  return info;
}

void ChooseRandomAddress(LeaderInfo* info) {
  const std::string name = RandomSocketName();
  std::memcpy(info->socket_name, name.c_str(), name.size() + 1);
  info->secret = RandomSecret();
}

RankCard OwnCard(const RendezvousOptions& options) {
  RankCard card = {};
  card.version = OCCL_VERSION;
  card.nranks = options.nranks;
  card.rank = options.rank;
  card.pid = getpid();
  card.pid_namespace = OwnPidNamespace();
  card.process = OwnProcessToken();
  card.processors = OwnProcessors();
  card.members = options.members;
  card.device = options.device;
  return card;
}

namespace {

Status JoinLeader(Meeting* meeting, const RendezvousOptions& options, const LeaderInfo& info,
                  const UniqueFd& socket, Gathering* gathering) {
  Hello hello = {};
  hello.magic = kBootstrapMagic;
  hello.secret = info.secret;
  hello.card = OwnCard(options);
  Status sent = SendMessage(socket, &hello, sizeof(hello), {}, options.deadline);
  if (sent.code() == occlRemoteError) return WhyGone(meeting, options, info);
  OCCL_RETURN_IF_ERROR(sent);
  bool direct = true;
  Status prepared = ReceiveSegment(meeting, socket, options, info, gathering);
  if (prepared.ok()) prepared = options.prepare(*gathering, &direct);
  Notice mapped =
      MakeNotice(prepared.ok() ? prepared : CannotTakePart(options.name, options.rank, prepared));
  mapped.direct = direct;
  sent = SendMessage(socket, &mapped, sizeof(mapped), {}, options.deadline);
  OCCL_RETURN_IF_ERROR(prepared);
  if (sent.code() == occlRemoteError) return WhyGone(meeting, options, info);
  OCCL_RETURN_IF_ERROR(sent);
  Notice go;
  OCCL_RETURN_IF_ERROR(ReceiveNotice(meeting, socket, options, info, nullptr, &go));
  gathering->direct = go.direct == 1;
  return Status();
}

}  // namespace

Status JoinRendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering) {
  LeaderInfo info;
  UniqueFd socket;
  OCCL_RETURN_IF_ERROR(ConnectToLeader(meeting, options, &info, &socket));
  const Status joined = JoinLeader(meeting, options, info, socket, gathering);
  if (!joined.ok()) static_cast<void>(FirstTold(info, options.rank));
  return joined;
}

Status Rendezvous(Meeting* meeting, const RendezvousOptions& options, Gathering* gathering) {
  return options.rank == 0 ? LeadRendezvous(meeting, options, gathering)
                           : JoinRendezvous(meeting, options, gathering);
}

}  // namespace occl
