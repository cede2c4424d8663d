#include "occl/bootstrap/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

constexpr int64_t kHelloTimeout_ms = 5000;  // from connect to hello
constexpr int64_t kSendTimeout_ms = 10'000;
constexpr int kPoll_ms = 200;
constexpr size_t kMaxStrangers = 64;
constexpr useconds_t kShortage_us = 20'000;

struct Stranger {
  UniqueFd socket;
  Deadline deadline;
};

}  // namespace

struct Keeper::Server {
  std::shared_ptr<Keeper> keeper;
  std::string name;
  int nranks;
  int rank;
  Secret secret;
  UniqueFd listener;
  UniqueFd segment;
  UniqueFd spare;          // given up to let a rank in where no descriptor is left
  std::vector<bool> come;  // by rank
  size_t missing;
  std::vector<Stranger> strangers;

  void Run();
  void AcceptAll();
  // False: not one of us, or not in its right mind.
  void Answer(const UniqueFd& socket);
  Status Check(const RankCard& card) const;
};

// Whoever sends anything but a hello with the right secret is turned away.
void Keeper::Server::Answer(const UniqueFd& socket) {
  Hello hello;
  const Status got = ReceiveMessage(socket, &hello, sizeof(hello), nullptr, Deadline::After(0));
  if (!got.ok() || hello.magic != kBootstrapMagic || !SameSecret(hello.secret, secret)) return;
  const Status fits = Check(hello.card);
  const Notice notice = MakeNotice(fits);
  std::vector<int> fds;
  if (fits.ok()) fds.push_back(segment.get());
  const Status sent =
      SendMessage(socket, &notice, sizeof(notice), fds, Deadline::After(kSendTimeout_ms));
  if (!fits.ok() || !sent.ok()) return;
  come[hello.card.rank] = true;
  --missing;
}

Status Keeper::Server::Check(const RankCard& card) const {
  if (card.version != OCCL_VERSION) {
    return Error(occlMismatch, "init of %s: rank %d has OCCL %d, rank %d (pid %lld) has OCCL %u",
                 name.c_str(), rank, OCCL_VERSION, card.rank, static_cast<long long>(card.pid),
                 card.version);
  }
  if (card.nranks != nranks) {
    return Error(
        occlMismatch, "init of %s: rank %d was told nranks = %d, rank %d (pid %lld) nranks = %d",
        name.c_str(), rank, nranks, card.rank, static_cast<long long>(card.pid), card.nranks);
  }
  if (card.rank < 0 || card.rank >= nranks || come[card.rank]) {
    return Error(occlMismatch, "init of %s: a second process (pid %lld) says it is rank %d",
                 name.c_str(), static_cast<long long>(card.pid), card.rank);
  }
  return Status();
}

void Keeper::Server::AcceptAll() {
  while (strangers.size() < kMaxStrangers) {
    Status shortage;
    UniqueFd socket = AcceptSameUser(listener, &shortage);
    if (!shortage.ok()) {
      // The listener stays readable: look away for a moment.
      if (!spare.valid()) usleep(kShortage_us);
      spare.Reset();
    }
    if (!socket.valid()) return;
    strangers.push_back({std::move(socket), Deadline::After(kHelloTimeout_ms)});
  }
}

void Keeper::Server::Run() {
  Deadline end;  // never, until the keeper retires
  bool retired = false;
  std::vector<pollfd> polls;
  while (missing > 0 && !end.Passed()) {
    if (!retired && keeper->retired_.load(std::memory_order_relaxed)) {
      retired = true;
      end = Deadline::After(kGrace_ms);
    }
    polls.assign(1, {listener.get(), POLLIN, 0});
    for (const Stranger& stranger : strangers) {
      polls.push_back({stranger.socket.get(), POLLIN, 0});
    }
    if (poll(polls.data(), polls.size(), kPoll_ms) < 0 && errno != EINTR) return;
    std::vector<Stranger> remaining;
    for (size_t i = 0; i < strangers.size(); ++i) {
      if (polls[1 + i].revents != 0) {
        Answer(strangers[i].socket);
      } else if (!strangers[i].deadline.Passed()) {
        remaining.push_back(std::move(strangers[i]));
      }
    }
    strangers = std::move(remaining);
    if (!spare.valid()) spare = UniqueFd(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
    AcceptAll();
  }
}

Status Keeper::Start(Meeting* meeting, const RendezvousOptions& options, UniqueFd segment,
                     LeaderInfo* info, std::shared_ptr<Keeper>* keeper) {
  *info = OwnLeaderInfo(options.nranks, options.rank);
  meeting->ChooseAddress(info);
  auto made = std::make_shared<Keeper>();
  auto server = std::make_unique<Server>();
  server->keeper = made;
  server->name = options.name;
  server->nranks = options.nranks;
  server->rank = options.rank;
  server->secret = info->secret;
  server->segment = std::move(segment);
  server->come.assign(options.nranks, false);
  server->come[options.rank] = true;
  server->missing = options.nranks - 1;
  OCCL_RETURN_IF_ERROR(
      Listen(PrintableText(info->socket_name, sizeof(info->socket_name)), &server->listener));
  OCCL_RETURN_IF_ERROR(meeting->Publish(*info));
  if (server->missing > 0) {
    try {
      // Nobody joins it: it uses nothing but what it owns, and ends by itself.
      std::thread([server = std::move(server)] { server->Run(); }).detach();
    } catch (const std::system_error& error) {
      return SystemError(error.code().value(), "starting the thread that brings ranks together");
    }
  }
  *keeper = std::move(made);
  return Status();
}

Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    UniqueFd* segment) {
  UniqueFd socket;
  OCCL_RETURN_IF_ERROR(ConnectToLeader(meeting, options, info, &socket));
  Hello hello = {};
  hello.magic = kBootstrapMagic;
  hello.secret = info->secret;
  hello.card = OwnCard(options);
  Status sent = SendMessage(socket, &hello, sizeof(hello), {}, options.deadline);
  if (sent.code() == occlRemoteError) return LeaderGone(options, *info);
  OCCL_RETURN_IF_ERROR(sent);
  Notice notice;
  std::vector<UniqueFd> fds;
  Status got = ReceiveMessage(socket, &notice, sizeof(notice), &fds, options.deadline);
  if (got.code() == occlRemoteError) return LeaderGone(options, *info);
  if (got.code() == occlTimeout) return LeaderSilent(options, *info);
  OCCL_RETURN_IF_ERROR(got);
  OCCL_RETURN_IF_ERROR(FromNotice(notice));
  if (fds.size() != 1) {
    return Error(occlInternalError, "init of %s: rank %d sent %zu descriptors instead of a segment",
                 options.name, info->rank, fds.size());
  }
  *segment = std::move(fds[0]);
  return Status();
}

}  // namespace occl
