#include "occl/core/presence.h"

#include <cstring>

#include "occl/base/log.h"
#include "occl/core/comm.h"

namespace occl {
namespace {

// The owner's runtime answers at once, or its process is stopped. The operation that needs the rank
// has a deadline of its own, so it is asked for a moment, now and then, and not waited for.
constexpr int64_t kOpenSlice_ms = 50;
constexpr int64_t kOpenPause_ms = 200;
// Who has not answered by then is read through the control segment.
constexpr int64_t kOpenPatience_ms = 10'000;

}  // namespace

Presence::Presence(ControlSegment* segment, int rank, std::string name,
                   std::vector<std::shared_ptr<PeerArena>> arenas, bool direct)
    : segment_(*segment),
      rank_(rank),
      name_(std::move(name)),
      at_once_(!arenas.empty()),
      arenas_(std::move(arenas)),
      reached_(new std::atomic<bool>[segment->nranks()]),
      direct_(at_once_ && direct),
      complete_(at_once_) {
  arenas_.resize(segment_.nranks());
  openings_.resize(segment_.nranks());
  for (int r = 0; r < segment_.nranks(); ++r) {
    reached_[r].store(at_once_, std::memory_order_relaxed);
  }
}

Status Presence::Join(const RankCard& card, const LeaderInfo& leader,
                      std::shared_ptr<Keeper> keeper, Bells* bells, Peers* peers) {
  bells_ = bells;
  peers_ = peers;
  leader_ = leader;
  keeper_ = std::move(keeper);
  RankBlock& own = segment_.rank(rank_);
  std::memcpy(own.card, &card, sizeof(card));
  own.joined.store(1, std::memory_order_release);
  bells_->RingAll();
  if (Reach(rank_)) return Status();
  return Error(occlInternalError, "communicator %s: rank %d cannot reach itself", name_.c_str(),
               rank_);
}

bool Presence::ReachSlow(int rank) {
  RankBlock& block = segment_.rank(rank);
  if (block.joined.load(std::memory_order_acquire) != 1) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  if (reached_[rank].load(std::memory_order_relaxed)) return true;
  Opening& opening = openings_[rank];
  if (opening.begun && !opening.next.Passed()) return false;
  RankCard card;
  std::memcpy(&card, block.card, sizeof(card));
  if (card.rank != rank || card.version != OCCL_VERSION) return false;
  if (!opening.begun) {
    peers_->Meet(rank, card);
    opening = {.begun = true, .next = {}, .last = Deadline::After(kOpenPatience_ms)};
  }
  const Status opened = PeerArena::Open(card.device, kOpenSlice_ms, &arenas_[rank]);
  if (opened.code() == occlTimeout && !opening.last.Passed()) {
    opening.next = Deadline::After(kOpenPause_ms);
    return false;
  }
  if (!opened.ok()) {
    OCCL_LOG(kInfo, kLogInit | kLogShm, "%s: rank %d cannot map the device of rank %d: %s",
             name_.c_str(), rank_, rank, opened.message().c_str());
  }
  segment_.stage_words(rank, rank_)
      .reading.store(static_cast<uint32_t>(opened.ok() ? Reading::kDirect : Reading::kStaged),
                     std::memory_order_release);
  reached_[rank].store(true, std::memory_order_release);
  bells_->RingAll();
  return true;
}

bool Presence::AllReachedSlow() {
  const int nranks = segment_.nranks();
  bool all_reached = true, all_mapped = true;
  for (int r = 0; r < nranks; ++r) {
    if (Reach(r)) {
      all_mapped = all_mapped && arenas_[r] != nullptr;
    } else {
      all_reached = false;  // and on: Missing() is to name the others only
    }
  }
  if (!all_reached) return false;
  RankBlock& own = segment_.rank(rank_);
  if (own.reading_all.load(std::memory_order_relaxed) == 0) {
    own.reading_all.store(static_cast<uint32_t>(all_mapped ? Reading::kDirect : Reading::kStaged),
                          std::memory_order_release);
    bells_->RingAll();
  }
  bool direct = true;
  for (int r = 0; r < nranks; ++r) {
    const auto reading =
        static_cast<Reading>(segment_.rank(r).reading_all.load(std::memory_order_acquire));
    if (reading == Reading::kUnknown) return false;
    direct = direct && reading == Reading::kDirect;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (!complete_.load(std::memory_order_relaxed)) {
    direct_ = direct;
    complete_.store(true, std::memory_order_release);
    OCCL_LOG(kInfo, kLogInit, "%s: all %d ranks have joined, data path %s", name_.c_str(), nranks,
             direct ? "direct" : "staged");
  }
  return true;
}

Reading Presence::ReadingOf(int rank) const {
  if (at_once_) return direct_ ? Reading::kDirect : Reading::kStaged;
  const uint32_t word = segment_.stage_words(rank_, rank).reading.load(std::memory_order_acquire);
  return word > static_cast<uint32_t>(Reading::kStaged) ? Reading::kStaged
                                                        : static_cast<Reading>(word);
}

std::string Presence::Missing() const {
  const auto unreached = [&](int r) { return !reached_[r].load(std::memory_order_acquire); };
  const auto silent = [&](int r) {
    return segment_.rank(r).reading_all.load(std::memory_order_acquire) ==
           static_cast<uint32_t>(Reading::kUnknown);
  };
  const std::string missing = List(unreached);
  return missing.empty() ? List(silent) : missing;
}

std::string Presence::List(const std::function<bool(int)>& which) const {
  std::string list;
  for (int r = 0; r < segment_.nranks(); ++r) {
    if (!which(r)) continue;
    if (list.size() > 200) return list + ", ...";
    const bool known = peers_ != nullptr && peers_->pid(r) != 0;
    list += (list.empty() ? "" : ", ") + (known ? peers_->Name(r) : std::to_string(r));
  }
  return list;
}

void MarkLeft(ControlSegment* segment, const std::vector<LeftRank>& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankBlock& block = segment->rank(static_cast<int>(r));
    // Who has joined says so itself.
    if (ranks[r].pid == 0 || HasLeft(block) || block.joined.load(std::memory_order_acquire) == 1) {
      continue;
    }
    RankCard card = {};
    card.rank = static_cast<int32_t>(r);
    card.pid = ranks[r].pid;
    std::memcpy(block.card, &card, sizeof(card));
    const RankState state = ranks[r].died         ? RankState::kDied
                            : ranks[r].had_joined ? RankState::kLeft
                                                  : RankState::kDestroyed;
    block.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  }
}

namespace {

// Where those wait that are missing though they have joined.
std::string WaitsOfMissing(Comm& comm) {
  constexpr size_t kMostText = 400;
  std::string all;
  for (int r = 0; r < comm.nranks(); ++r) {
    if (!comm.presence.Reach(r)) return "";  // it is what is missing, and writes nothing here
    const bool silent = comm.block(r).reading_all.load(std::memory_order_acquire) ==
                        static_cast<uint32_t>(Reading::kUnknown);
    if (!silent || all.size() > kMostText) continue;
    const std::string waits = WaitBoard::Read(&comm.segment(), r);
    if (!waits.empty()) all += "; rank " + std::to_string(r) + " waits in " + waits;
  }
  return all;
}

Status AwaitRanksUntil(Comm& comm, Meeting* meeting, const Deadline& deadline) {
  constexpr int64_t kSlice_ns = 50'000'000;
  constexpr int64_t kMeetingInterval_ms = 200;
  Deadline next_question = Deadline::After(0);  // the caller may have little time, and come again
  while (!comm.presence.AllReached()) {
    const uint32_t announced = comm.bells.Announce();
    if (!comm.presence.AllReached()) {
      comm.bells.Sleep(announced, std::min(kSlice_ns, deadline.RemainingNs()));
    }
    comm.bells.Leave();
    comm.peers.Refresh();
    if (comm.presence.AllReached()) break;
    if (!comm.good()) return comm.failure();
    comm.joining.Show(std::string("the first use of communicator ") + comm.name() +
                      " for rank(s) " + comm.presence.Missing());
    for (int r = 0; r < comm.nranks(); ++r) {
      const std::string gone = comm.TellGone(r);
      if (gone.empty()) continue;
      if (comm.presence.AllReached()) return Status();  // since then, and it was there
      return comm.Fail(Error(occlRemoteError, "init of %s, which not all ranks have joined: %s",
                             comm.name(), gone.c_str()));
    }
    if (meeting != nullptr && next_question.Passed()) {
      // The others are told at once: they may look there later than this rank leaves.
      const Status told = meeting->CheckFailure(comm.presence.leader());
      if (!told.ok()) return comm.Fail(told);
      // Who could not tell it here: the keeper is stopped, or has gone.
      std::vector<LeftRank> left(comm.nranks());
      OCCL_RETURN_IF_ERROR(meeting->FindLeft(&left));
      MarkLeft(&comm.segment(), left);
      next_question = Deadline::After(kMeetingInterval_ms);
    }
    if (deadline.Passed()) {
      const std::string missing = comm.presence.Missing();
      if (missing.empty()) continue;  // the last has come at this moment
      return Error(occlTimeout, "init of %s with %d ranks: rank(s) %s did not come in time%s",
                   comm.name(), comm.nranks(), missing.c_str(), WaitsOfMissing(comm).c_str());
    }
  }
  return Status();
}

}  // namespace

Status AwaitRanks(Comm& comm, Meeting* meeting, const Deadline& deadline) {
  Status status = AwaitRanksUntil(comm, meeting, deadline);
  // Whose time was too short comes again, or gives up: then it aborts.
  if (status.code() != occlTimeout) comm.joining.Clear();
  // Who is on the way may be unable to look into the segment.
  if (meeting != nullptr && !status.ok() && status.code() != occlTimeout &&
      meeting->CheckFailure(comm.presence.leader()).ok()) {
    meeting->ReportFailure(comm.presence.leader(), status);
  }
  return status;
}

Status AwaitOthers(Comm& comm, const std::vector<bool>& excluded, const Deadline& deadline) {
  constexpr int64_t kSlice_ns = 50'000'000;
  for (int r = 0; r < comm.nranks(); ++r) {
    while (!excluded[r] && !comm.presence.Reach(r)) {
      if (deadline.Passed()) {
        return Error(occlTimeout, "rank %d of %s did not join in time", r, comm.name());
      }
      comm.peers.Refresh();
      const std::string gone = comm.TellGone(r);
      if (!gone.empty()) return Error(occlRemoteError, "%s: %s", comm.name(), gone.c_str());
      const uint32_t announced = comm.bells.Announce();
      if (!comm.presence.Reach(r)) comm.bells.Sleep(announced, kSlice_ns);
      comm.bells.Leave();
    }
  }
  return Status();
}

Status AwaitAllRanks(Comm& comm) {
  if (comm.presence.AllReached()) return Status();
  return AwaitRanks(comm, nullptr, Deadline::After(comm.settings().init_timeout_ms));
}

}  // namespace occl
