#include "occl/core/comm.h"

#include <algorithm>
#include <cstring>

#include "occl/base/futex.h"
#include "occl/base/log.h"
#include "occl/bootstrap/doorman.h"

namespace occl {
namespace {

// A peer's runtime answers at once, or is not going to.
constexpr int64_t kOpenTimeout_ms = 10'000;

// The processors that any of the ranks may use: the same answer on every rank, also where each is
// bound to a processor of its own.
int CountProcessors(const Gathering& gathering) {
  ProcessorSet together = {};
  for (const RankCard& card : gathering.cards) together.Add(card.processors);
  return together.Count();
}

// What Create and Join tell the other ranks of this one.
Status Introduce(const CommSettings& settings, RendezvousOptions* options) {
  options->nranks = settings.nranks;
  options->rank = settings.rank;
  options->deadline = Deadline::After(settings.init_timeout_ms);
  options->name = settings.name.c_str();
  options->members = MakeMembers(settings.members);
  return FromRuntime(orIpcGetDeviceHandle(&options->device, settings.device),
                     "orIpcGetDeviceHandle");
}

// Maps the peers' devices. One that cannot be mapped is no failure: the data then goes through the
// control segment, on all ranks.
bool OpenArenas(const CommSettings& settings, const Gathering& gathering, const Deadline& deadline,
                std::vector<std::shared_ptr<PeerArena>>* arenas) {
  arenas->resize(settings.nranks);
  for (int r = 0; r < settings.nranks; ++r) {
    const int64_t remaining_ns = deadline.RemainingNs();
    const int64_t timeout_ms = std::min(remaining_ns / 1'000'000 + 1, kOpenTimeout_ms);
    Status opened = PeerArena::Open(gathering.cards[r].device, timeout_ms, &(*arenas)[r]);
    if (!opened.ok()) {
      OCCL_LOG(kInfo, kLogInit | kLogShm, "%s: rank %d cannot map the device of rank %d: %s",
               settings.name.c_str(), settings.rank, r, opened.message().c_str());
      return false;
    }
  }
  return true;
}

// Fails the communicator of a segment for all ranks, whether its Comm is still there or not.
void FailSegment(ControlSegment* segment, int rank, const Status& status) {
  segment->PostError(rank, status.code(), status.message().c_str());
  Bells(segment, rank).RingAll();
  OCCL_LOG(kWarn, kLogInit, "%s", status.message().c_str());
}

// Before this rank has made the segment of this generation. Those who wait already are told.
void MarkWhoHasGone(Comm& comm, Meeting* meeting) {
  std::vector<LeftRank> gone(comm.nranks());
  const Status found = meeting->FindGone(comm.presence.leader().generation, &gone);
  if (!found.ok()) OCCL_LOG(kWarn, kLogInit, "%s: %s", comm.name(), found.message().c_str());
  gone[comm.rank()] = {};
  MarkLeft(&comm.segment(), gone);
  comm.bells.RingAll();
}

}  // namespace

Status Comm::Create(const CommSettings& settings, Meeting* meeting, Ref<Comm>* comm) {
  LogVersion();
  RendezvousOptions options;
  OCCL_RETURN_IF_ERROR(Introduce(settings, &options));
  std::vector<std::shared_ptr<PeerArena>> arenas;
  options.prepare = [&](const Gathering& gathering, bool* direct) {
    *direct = OpenArenas(settings, gathering, options.deadline, &arenas);
    return Status();
  };
  Gathering gathering;
  OCCL_RETURN_IF_ERROR(Rendezvous(meeting, options, &gathering));
  Ref<Comm> created = Ref<Comm>::Adopt(
      new Comm(settings, &gathering, std::move(arenas), CountProcessors(gathering)));
  OCCL_RETURN_IF_ERROR(created->FindDevice());
  OCCL_LOG(kInfo, kLogInit, "%s: rank %d of %d on device %d is ready, data path %s%s",
           created->name(), created->rank(), created->nranks(), created->device(),
           created->direct() ? "direct" : "staged",
           created->crowded() ? ", waits sleep: more ranks than processors" : "");
  *comm = std::move(created);
  return Status();
}

// How far a rank has come that joins without waiting for the others.
struct Comm::Joining {
  bool first = false;     // of its generation: it makes the segment
  bool inherits = false;  // those of an earlier generation have gone
  std::vector<LeftRank> left;
  LeaderInfo leader = {};
  // Open until the others know of a failure: who finds nobody there makes the next generation.
  Kept kept;
  std::shared_ptr<Keeper> keeper;
};

Status Comm::Join(const CommSettings& settings, Meeting* meeting, Ref<Comm>* comm) {
  OCCL_RETURN_IF_ERROR(meeting->CheckAborted());
  Joining joining;
  bool some_left = false;
  OCCL_RETURN_IF_ERROR(meeting->ComesFirst(&joining.first, &some_left));
  joining.left.resize(settings.nranks);
  if (joining.first && some_left) {
    OCCL_RETURN_IF_ERROR(meeting->FindLeft(&joining.left));
  }
  const Status joined = TryJoin(settings, meeting, &joining, comm);
  if (joined.ok() && joining.first) {
    // Whoever aborts says so and then looks for the first rank; the first rank is there and then
    // looks whether somebody has aborted: one of them sees the other. The same with who leaves.
    const Status aborted = meeting->CheckAborted();
    if (!aborted.ok()) static_cast<void>((*comm)->Fail(aborted));
    if (joining.inherits) MarkWhoHasGone(**comm, meeting);
  }
  if (joined.ok()) return joined;
  LeaderInfo& leader = joining.leader;
  const bool met = leader.magic == kBootstrapMagic;
  if (joining.first && !met) {
    leader = OwnLeaderInfo(settings.nranks, settings.rank);
    meeting->ChooseAddress(&leader);
  }
  // What it was told by another rank, the others are told as well.
  if (joining.first || (met && meeting->CheckFailure(leader).ok())) {
    meeting->ReportFailure(leader, CannotTakePart(settings.name.c_str(), settings.rank, joined));
  }
  // Nobody listens there: the others look why.
  if (joining.first) static_cast<void>(meeting->Publish(leader));
  return joined;
}

// The segment: that of the ranks who have come, or a new one.
Status Comm::FindSegment(const RendezvousOptions& options, Meeting* meeting, Joining* joining,
                         Gathering* gathering) {
  Kept& kept = joining->kept;
  LeaderInfo& leader = joining->leader;
  if (!joining->first) {
    OCCL_RETURN_IF_ERROR(FetchOrInherit(meeting, options, &leader, &kept));
    if (kept.file.valid()) {
      OCCL_RETURN_IF_ERROR(ControlSegment::Map(kept.file, options.nranks, &gathering->segment));
      OCCL_RETURN_IF_ERROR(LifeLock::Take(kept.file, options.rank, &gathering->life_lock));
      if (!AllLetIn(gathering->segment.get())) {  // somebody may come who does not find this rank
        OCCL_RETURN_IF_ERROR(meeting->SayJoined(leader, options.rank));
      }
      return Keeper::GoOn(options, leader, &kept, gathering->segment, &FailSegment,
                          &joining->keeper);
    }
    joining->first = joining->inherits = true;
  }
  const uint32_t generation = joining->inherits ? leader.generation + 1 : 0;
  OCCL_RETURN_IF_ERROR(ControlSegment::Create(options.nranks, &kept.file));
  OCCL_RETURN_IF_ERROR(ControlSegment::Map(kept.file, options.nranks, &gathering->segment));
  OCCL_RETURN_IF_ERROR(LifeLock::Take(kept.file, options.rank, &gathering->life_lock));
  if (!joining->inherits) MarkLeft(gathering->segment.get(), joining->left);
  return Keeper::Start(meeting, options, generation, std::move(kept.file), gathering->segment,
                       &FailSegment, &leader, &joining->keeper);
}

Status Comm::TryJoin(const CommSettings& settings, Meeting* meeting, Joining* joining,
                     Ref<Comm>* comm) {
  RendezvousOptions options;
  OCCL_RETURN_IF_ERROR(Introduce(settings, &options));
  Gathering gathering;
  OCCL_RETURN_IF_ERROR(FindSegment(options, meeting, joining, &gathering));
  gathering.cards.resize(settings.nranks);
  gathering.pidfds.resize(settings.nranks);
  // The others have not come yet: what the first rank may use counts.
  const LeaderInfo& leader = joining->leader;
  Ref<Comm> created =
      Ref<Comm>::Adopt(new Comm(settings, &gathering, {}, leader.processors.Count()));
  OCCL_RETURN_IF_ERROR(created->FindDevice());
  OCCL_RETURN_IF_ERROR(created->presence.Join(OwnCard(options), leader, joining->keeper,
                                              &created->bells, &created->peers));
  OCCL_LOG(kInfo, kLogInit, "%s: rank %d of %d on device %d has joined%s", created->name(),
           created->rank(), created->nranks(), created->device(),
           joining->inherits ? ", the first since all who had joined have gone"
           : joining->first  ? ", the first"
                             : "");
  *comm = std::move(created);
  return Status();
}

Comm::Comm(const CommSettings& settings, Gathering* gathering,
           std::vector<std::shared_ptr<PeerArena>> arenas, int processors)
    : scratch(settings.nranks),
      bells(gathering->segment.get(), settings.rank),
      history(gathering->segment.get(), settings.rank),
      peers(gathering),
      presence(gathering->segment.get(), settings.rank, settings.name, std::move(arenas),
               gathering->direct),
      quarantine(gathering->segment.get(), settings.rank, &bells, &peers),
      matcher(gathering->segment.get(), settings.rank),
      waits(gathering->segment, settings.rank, settings.device),
      settings_(settings),
      segment_(gathering->segment),
      processors_(processors),
      timeout_ms_(settings.timeout_ms) {
  block(rank()).state.store(static_cast<uint32_t>(RankState::kAlive), std::memory_order_release);
}

Comm::~Comm() = default;

Status Comm::FindDevice() {
  OCCL_RETURN_IF_ERROR(FromRuntime(orDeviceGetDefaultStream(&default_stream_, device()),
                                   "orDeviceGetDefaultStream"));
  orArenaInfo info;
  OCCL_RETURN_IF_ERROR(FromRuntime(orDeviceGetArena(device(), &info), "orDeviceGetArena"));
  arena_ = {static_cast<const unsigned char*>(info.deviceBase),
            static_cast<unsigned char*>(info.kernelBase), info.size};
  return Status();
}

bool Comm::Translate(const void* device_pointer, uint64_t size_bytes,
                     unsigned char** kernel_pointer) const {
  const uint64_t offset =
      reinterpret_cast<uintptr_t>(device_pointer) - reinterpret_cast<uintptr_t>(arena_.device_base);
  if (offset >= arena_.size_bytes || size_bytes > arena_.size_bytes - offset) return false;
  *kernel_pointer = arena_.base + offset;
  return true;
}

Status Comm::failure() {
  if (good()) return Status();
  const uint32_t word = segment_->header().error.load(std::memory_order_acquire);
  std::lock_guard<std::mutex> lock(failure_mutex_);
  if (failure_.ok()) {
    failure_ = ReadPeersError(word);
    failed_.store(true, std::memory_order_release);
  }
  return failure_;
}

Status Comm::ReadPeersError(uint32_t word) {
  if (word == 0 || word > static_cast<uint32_t>(nranks())) {
    return Error(occlInternalError,
                 "communicator %s: the control segment is damaged (error word 0x%x)", name(), word);
  }
  const ErrorSlot& slot = block(static_cast<int>(word) - 1).error;
  if (slot.published.load(std::memory_order_acquire) != 1) {
    return Error(occlInternalError,
                 "communicator %s: rank %u says it has failed without saying why", name(),
                 word - 1);
  }
  char message[kErrorMessageBytes];
  std::memcpy(message, slot.message, sizeof(message));
  return Status(CheckedCode(CopyOut(slot.code)), PrintableText(message, sizeof(message)));
}

Status Comm::Fail(const Status& status) {
  Status counts = FailUnlogged(status);
  LogFailure(status);
  return counts;
}

void Comm::LogFailure(const Status& status) {
  OCCL_LOG(kWarn, kLogColl, "%s", status.message().c_str());
}

Status Comm::FailUnlogged(const Status& status) {
  joining.Clear();
  {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    const bool first = segment_->PostError(rank(), status.code(), status.message().c_str());
    const uint32_t word = segment_->header().error.load(std::memory_order_acquire);
    if (failure_.ok()) failure_ = first ? status : ReadPeersError(word);
    failed_.store(true, std::memory_order_release);
  }
  bells.RingAll();
  return failure();
}

Status Comm::FailLocally(const Status& status) {
  {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.ok()) failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  bells.RingOwn();
  return failure();
}

bool Comm::HasDied(int rank) const {
  const RankBlock& other = block(rank);
  return HasLeft(other) ? StateOf(other) == RankState::kDied : peers.Ended(rank);
}

std::string Comm::TellGone(int rank) const {
  const RankBlock& other = block(rank);
  if (!HasLeft(other)) {
    return peers.Ended(rank) ? "rank " + peers.Name(rank) + peers.HowItEnded(rank) : "";
  }
  std::string who = "rank " + peers.Name(rank);
  const bool came = presence.HasCome(rank);
  if (!came) {
    RankCard card;
    std::memcpy(&card, other.card, sizeof(card));
    who = "rank " + std::to_string(rank) + " (pid " + std::to_string(card.pid) + ")";
  }
  if (HasDied(rank)) return who + " has died";
  return who +
         (came || StateOf(other) == RankState::kLeft ? " has destroyed the communicator"
                                                     : " destroyed the group before it came") +
         TellDeaths();
}

std::string Comm::TellDeaths() const {
  constexpr size_t kMostText = 200;
  std::string deaths;
  for (int r = 0; r < nranks(); ++r) {
    if (r == rank() || !HasDied(r)) continue;
    if (deaths.size() > kMostText) return deaths + "; ...";
    deaths += "; " + TellGone(r);
  }
  return deaths;
}

void Comm::OpEnded() {
  // seq_cst on both: either the waiter sees the new number or this sees the waiter.
  pending_.fetch_sub(1, std::memory_order_seq_cst);
  if (idle_waiters_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&pending_);
}

bool Comm::WaitIdle(const Deadline& deadline) {
  constexpr int64_t kSlice_ns = 50'000'000;
  idle_waiters_.fetch_add(1, std::memory_order_seq_cst);
  uint32_t pending = pending_.load(std::memory_order_seq_cst);
  while (pending != 0 && !deadline.Passed()) {
    FutexWait(&pending_, pending, std::min(deadline.RemainingNs(), kSlice_ns));
    pending = pending_.load(std::memory_order_seq_cst);
  }
  idle_waiters_.fetch_sub(1, std::memory_order_relaxed);
  return pending == 0;
}

void Comm::Close() {
  constexpr int64_t kDrain_ms = 1000;
  OCCL_LOG(kInfo, kLogInit, "%s: rank %d destroys it", name(), rank());
  if (pending() != 0 && good()) {
    peers.Refresh();
    static_cast<void>(FailLocally(Error(occlAborted,
                                        "communicator %s was destroyed on rank %d while "
                                        "operations were pending",
                                        name(), rank())));
    static_cast<void>(
        Fail(Error(occlRemoteError,
                   "rank %s has destroyed communicator %s while %u operation(s) "
                   "were pending%s",
                   peers.Name(rank()).c_str(), name(), pending(), TellDeaths().c_str())));
  }
  block(rank()).state.store(static_cast<uint32_t>(RankState::kDestroyed),
                            std::memory_order_release);
  bells.RingAll();
  // What still runs on a stream holds the communicator until it has noticed.
  const Deadline deadline = Deadline::After(kDrain_ms);
  if (WaitIdle(deadline)) block(rank()).quit.store(1, std::memory_order_release);
  bells.RingAll();
  const size_t held = quarantine.Drain(deadline);
  if (held != 0) {
    OCCL_LOG(kWarn, kLogColl,
             "%s: %zu buffer(s) are not given back to the device: a peer may still write them",
             name(), held);
  }
}

}  // namespace occl
