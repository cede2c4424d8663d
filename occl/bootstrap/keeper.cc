#include "occl/bootstrap/keeper.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "occl/bootstrap/doorman.h"
#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

constexpr int64_t kAskAgain_ns = 5'000'000;
// Between two looks for why nobody answers.
constexpr int64_t kSlice_ms = 200;
// Of a keeper that lives and turns this rank away without a word.
constexpr int kMostRefusals = 200;

uint64_t RandomAttempt() {
  const Secret random = RandomSecret();
  uint64_t attempt;
  std::memcpy(&attempt, random.bytes, sizeof(attempt));
  return attempt | 1;
}

void Pause() {
  const timespec pause = {0, kAskAgain_ns};
  nanosleep(&pause, nullptr);
}

Status Ask(Meeting* meeting, const RendezvousOptions& options, const LeaderInfo& info,
           const UniqueFd& socket, uint64_t attempt, Notice* notice, std::vector<UniqueFd>* fds) {
  Hello hello = {};
  hello.magic = kBootstrapMagic;
  hello.secret = info.secret;
  hello.attempt = attempt;
  hello.card = OwnCard(options);
  OCCL_RETURN_IF_ERROR(SendMessage(socket, &hello, sizeof(hello), {}, options.deadline));
  while (true) {
    const int64_t remaining_ms = options.deadline.RemainingNs() / 1'000'000;
    const Status got = ReceiveMessage(socket, notice, sizeof(*notice), fds,
                                      Deadline::After(std::min(remaining_ms + 1, kSlice_ms)));
    if (got.code() != occlTimeout) return got;
    OCCL_RETURN_IF_ERROR(meeting->CheckFailure(info));
    if (options.deadline.Passed()) return LeaderSilent(options, info);
  }
}

}  // namespace

Keeper::~Keeper() { Doorman::Get().Retire(door_); }

Status Keeper::Start(Meeting* meeting, const RendezvousOptions& options, uint32_t generation,
                     UniqueFd file, std::shared_ptr<ControlSegment> segment, Fail fail,
                     LeaderInfo* info, std::shared_ptr<Keeper>* keeper) {
  *info = OwnLeaderInfo(options.nranks, options.rank);
  info->generation = generation;
  meeting->ChooseAddress(info);
  Kept kept;
  kept.file = std::move(file);
  segment->rank(options.rank).let_in.store(RandomAttempt(), std::memory_order_release);
  OCCL_RETURN_IF_ERROR(
      Listen(PrintableText(info->socket_name, sizeof(info->socket_name)), &kept.listener));
  OCCL_RETURN_IF_ERROR(GoOn(options, *info, &kept, std::move(segment), std::move(fail), keeper));
  const Status published = meeting->Publish(*info);
  if (!published.ok() && *keeper != nullptr) {
    // Its descriptors may be what the store needs to say why.
    Doorman::Get().Close((*keeper)->door_);
  }
  return published;
}

Status Keeper::GoOn(const RendezvousOptions& options, const LeaderInfo& info, Kept* kept,
                    std::shared_ptr<ControlSegment> segment, Fail fail,
                    std::shared_ptr<Keeper>* keeper) {
  if (AllLetIn(segment.get())) return Status();
  auto door = std::make_unique<Door>();
  door->name = options.name;
  door->card = OwnCard(options);
  door->secret = info.secret;
  door->listener = std::move(kept->listener);
  door->file = std::move(kept->file);
  door->segment = std::move(segment);
  door->fail = [mapped = door->segment.get(), rank = options.rank,
                fail = std::move(fail)](const Status& status) { fail(mapped, rank, status); };
  uint64_t id = 0;
  const Status taken = Doorman::Get().Keep(&door, &id);
  if (!taken.ok()) {
    *kept = {std::move(door->file), std::move(door->listener)};
    return taken;
  }
  *keeper = std::make_shared<Keeper>(id);
  return Status();
}

Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    Kept* kept) {
  const uint64_t attempt = RandomAttempt();
  Notice notice;
  std::vector<UniqueFd> fds;
  Status got;
  for (int refusals = 0; refusals < kMostRefusals; ++refusals) {
    UniqueFd socket;
    bool refused = false;
    OCCL_RETURN_IF_ERROR(ConnectToLeader(meeting, options, info, &socket, &refused));
    if (refused) return Status();
    got = Ask(meeting, options, *info, socket, attempt, &notice, &fds);
    // Turned away without a word: too many wait there, or whoever was to answer has gone.
    if (got.code() != occlRemoteError || options.deadline.Passed()) break;
    OCCL_RETURN_IF_ERROR(meeting->CheckFailure(*info));
    Pause();
  }
  if (got.code() == occlRemoteError) return LeaderGone(options, *info);
  OCCL_RETURN_IF_ERROR(got);
  OCCL_RETURN_IF_ERROR(FromNotice(notice));
  if (fds.size() != 2 || !IsListener(fds[1])) {
    return Error(occlInternalError,
                 "init of %s: rank %d sent %zu descriptors instead of a segment and a socket that "
                 "listens",
                 options.name, info->rank, fds.size());
  }
  kept->file = std::move(fds[0]);
  kept->listener = std::move(fds[1]);
  return Status();
}

Status FetchOrInherit(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                      Kept* kept) {
  int64_t asked = -1;  // the generation that another rank inherits
  while (true) {
    OCCL_RETURN_IF_ERROR(FetchSegment(meeting, options, info, kept));
    if (kept->file.valid()) return Status();
    if (asked != info->generation) {
      bool inherits = false;
      OCCL_RETURN_IF_ERROR(meeting->Inherits(*info, &inherits));
      if (inherits) return Status();
      asked = info->generation;
    }
    if (options.deadline.Passed()) {
      return Error(occlTimeout,
                   "init of %s: rank %d (pid %lld) and all others that had joined have gone, and "
                   "the rank that was to take their place did not in time",
                   options.name, info->rank, static_cast<long long>(info->process.pid));
    }
    Pause();
  }
}

}  // namespace occl
