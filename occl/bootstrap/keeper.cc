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
constexpr int64_t kSlice_ms = 1000;
// Of a keeper that lives and turns this rank away without a word.
constexpr int kMostRefusals = 200;

uint64_t RandomAttempt() {
  const Secret random = RandomSecret();
  uint64_t attempt;
  std::memcpy(&attempt, random.bytes, sizeof(attempt));
  return attempt | 1;
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

Status Keeper::Start(Meeting* meeting, const RendezvousOptions& options, UniqueFd file,
                     std::shared_ptr<ControlSegment> segment, Fail fail, LeaderInfo* info,
                     std::shared_ptr<Keeper>* keeper) {
  *info = OwnLeaderInfo(options.nranks, options.rank);
  meeting->ChooseAddress(info);
  auto door = std::make_unique<Door>();
  door->name = options.name;
  door->rank = options.rank;
  door->secret = info->secret;
  door->file = std::move(file);
  door->segment = std::move(segment);
  ControlSegment* const mapped = door->segment.get();
  door->fail = [mapped, rank = options.rank, fail = std::move(fail)](const Status& status) {
    fail(mapped, rank, status);
  };
  mapped->rank(options.rank).let_in.store(RandomAttempt(), std::memory_order_release);
  OCCL_RETURN_IF_ERROR(
      Listen(PrintableText(info->socket_name, sizeof(info->socket_name)), &door->listener));
  uint64_t id = 0;
  if (!AllLetIn(mapped)) OCCL_RETURN_IF_ERROR(Doorman::Get().Keep(std::move(door), &id));
  const Status published = meeting->Publish(*info);
  if (published.ok()) {
    *keeper = std::make_shared<Keeper>(id);
  } else {
    Doorman::Get().Close(id);  // its descriptors may be what the store needs to say why
  }
  return published;
}

Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    UniqueFd* segment) {
  const uint64_t attempt = RandomAttempt();
  Notice notice;
  std::vector<UniqueFd> fds;
  Status got;
  for (int refusals = 0; refusals < kMostRefusals; ++refusals) {
    UniqueFd socket;
    OCCL_RETURN_IF_ERROR(ConnectToLeader(meeting, options, info, &socket));
    got = Ask(meeting, options, *info, socket, attempt, &notice, &fds);
    // Turned away without a word: too many wait there, or the keeper has gone.
    if (got.code() != occlRemoteError || options.deadline.Passed()) break;
    OCCL_RETURN_IF_ERROR(meeting->CheckFailure(*info));
    const timespec pause = {0, kAskAgain_ns};
    nanosleep(&pause, nullptr);
  }
  if (got.code() == occlRemoteError) return LeaderGone(options, *info);
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
