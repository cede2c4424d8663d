#include "occl/core/message_op.h"

#include <algorithm>
#include <cstring>

#include "occl/base/datatypes.h"
#include "occl/core/algorithms.h"
#include "occl/reduce/copy.h"

namespace occl {
namespace {

constexpr uint64_t kBlockBytes = 256 * 1024;

void DescribeMessage(const MessageSpec& spec, uint64_t number, int peer, occlOpRecord_t* record) {
  record->sequence = number;
  record->datatype = spec.datatype;
  record->op = occlSum;
  record->root = peer;
  record->tag = spec.tag;
  record->count = spec.count;
}

// More are not named.
constexpr size_t kMaxTagsTold = 8;

std::string TagName(int tag) {
  return tag == OCCL_ANY_TAG ? "any tag" : "tag " + std::to_string(tag);
}

// "tag 1, tag 3"
std::string TagList(std::vector<int> tags) {
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  std::string list;
  for (size_t i = 0; i < tags.size() && i < kMaxTagsTold; ++i) {
    list += (i == 0 ? "" : ", ") + TagName(tags[i]);
  }
  return tags.size() > kMaxTagsTold ? list + ", ..." : list;
}

void CountMessage(CommStats* stats, bool on_caller) {
  stats->operations.Add(1);
  if (on_caller) stats->inline_operations.Add(1);
}

}  // namespace

SendOp::SendOp(Ref<Comm> comm, const MessageSpec& spec)
    : CommOp(std::move(comm), OpKind::kSend), spec_(spec), pending_{spec.peer, spec.tag} {}

void SendOp::DoIssue() { number_ = comm().matcher.Add(&pending_); }

void SendOp::DoFinish(bool success) {
  if (sequence_ == 0) comm().matcher.Remove(&pending_);
  if (success) CountMessage(&comm().message_stats, on_caller());
}

void SendOp::Describe(occlOpRecord_t* record) const {
  DescribeMessage(spec_, number_, spec_.peer, record);
}

bool SendOp::Post() {
  MessageHead head = {};
  head.count = spec_.count;
  head.tag = spec_.tag;
  head.datatype = static_cast<uint8_t>(spec_.datatype);
  unsigned char inline_data[kInlineBytes] = {};
  if (spec_.size_bytes() <= kInlineBytes) {
    path_ = DataPath::kInline;
    if (spec_.count > 0) std::memcpy(inline_data, spec_.data, spec_.size_bytes());
  } else if (comm().presence.ReadingOf(spec_.peer) == Reading::kUnknown) {
    return false;  // the receiver has not joined, or not looked for this rank yet
  } else if (UsesDirectPath(comm().presence.ReadingOf(spec_.peer) == Reading::kDirect)) {
    path_ = DataPath::kDirect;
    head.offset = comm().OffsetOf(spec_.data);
  } else {
    path_ = DataPath::kSlot;
  }
  head.path = static_cast<uint8_t>(path_);
  if (fault() == faulty::Fault::kTruncate && head.count > 0) [[unlikely]]
    --head.count;
  if (!comm().matcher.Post(&pending_, head, inline_data, &sequence_)) return false;
  comm().bells.RingAll();
  return true;
}

StepResult SendOp::Step() {
  comm().presence.Reach(spec_.peer);  // so that the peer's end is noticed
  if (sequence_ == 0) {
    const StepResult result = MeetFault(spec_.peer, number_);
    if (result != StepResult::kMoved) return result;
    // Lost: it waits for an answer in vain.
    if (fault() == faulty::Fault::kDrop || !Post()) return StepResult::kWaiting;
    Started();
  }
  if (path_ == DataPath::kSlot && PutChunks() == StepResult::kMoved) return StepResult::kMoved;
  const auto& read = comm().segment().message_read(comm().rank(), spec_.peer, sequence_);
  // Another send of this rank may have seen that the place is free, and used it, and been read.
  if (read.load(std::memory_order_acquire) < sequence_) return StepResult::kWaiting;
  return FinishOk();
}

bool SendOp::PeersAtWork() const {
  const StageWords& words = comm().segment().stage_words(comm().rank(), spec_.peer);
  const uint64_t first = StageWord(sequence_, 0);
  const uint64_t taken = words.taken.load(std::memory_order_relaxed);
  return sequence_ != 0 && taken >= first && taken - first <= UINT32_MAX;
}

std::string SendOp::TellUnmatched(Comm& comm) const {
  std::vector<int> tags;
  for (const occlOpRecord_t& record : History::Read(&comm.segment(), spec_.peer, kHistoryPlaces)) {
    const bool from_here = record.root == comm.rank() || record.root == OCCL_ANY_SOURCE;
    const bool receives = std::strcmp(record.operation, OpName(OpKind::kRecv)) == 0;
    if (receives && from_here && record.state <= kStarted) tags.push_back(record.tag);
  }
  if (tags.empty() || std::count(tags.begin(), tags.end(), spec_.tag) != 0) return "";
  return "; this message has " + TagName(spec_.tag) + ", what rank " + std::to_string(spec_.peer) +
         " waits to receive from here has " + TagList(std::move(tags));
}

// Once the receiver has asked for this message: at most two chunks ahead of it.
StepResult SendOp::PutChunks() {
  ControlSegment& segment = comm().segment();
  StageWords& words = segment.stage_words(comm().rank(), spec_.peer);
  const uint64_t chunk_bytes = segment.stage_chunk_bytes();
  const uint64_t total = (spec_.size_bytes() + chunk_bytes - 1) / chunk_bytes;
  const uint64_t taken = words.taken.load(std::memory_order_acquire);
  const uint64_t first = StageWord(sequence_, 0);
  if (chunks_ == total || taken < first || taken >= first + total) return StepResult::kWaiting;
  if (chunks_ >= taken - first + 2) return StepResult::kWaiting;
  const uint64_t at = chunks_ * chunk_bytes;
  std::memcpy(segment.stage(comm().rank(), spec_.peer, chunks_), spec_.data + at,
              std::min(spec_.size_bytes() - at, chunk_bytes));
  words.sent.store(first + ++chunks_, std::memory_order_release);
  comm().bells.RingAll();
  return StepResult::kMoved;
}

RecvOp::RecvOp(Ref<Comm> comm, const MessageSpec& spec)
    : CommOp(std::move(comm), OpKind::kRecv), spec_(spec) {
  pending_.peer = spec.peer;
  pending_.tag = spec.tag;
}

void RecvOp::DoIssue() { number_ = comm().matcher.Add(&pending_); }

void RecvOp::DoFinish(bool success) {
  if (!success) comm().matcher.Remove(&pending_);
  source_ = pending_.source;
  if (success) CountMessage(&comm().message_stats, on_caller());
}

void RecvOp::Describe(occlOpRecord_t* record) const {
  DescribeMessage(spec_, number_, spec_.peer, record);
}

// A receive from any source needs whoever may still send: it fails when a rank has died without
// leaving (that one may have been the sender), and when every rank has left.
bool RecvOp::WaitsFor(int rank) const {
  if (comm().matcher.Matched(pending_)) {  // what is left to come: its memory, or the next chunk
    return rank == pending_.source &&
           (pending_.head.path == static_cast<uint8_t>(DataPath::kSlot) ||
            !comm().presence.Reach(rank));
  }
  if (spec_.peer != OCCL_ANY_SOURCE) return rank == spec_.peer;
  const auto left = [&](int r) { return HasLeft(comm().block(r)); };
  if (!left(rank) && comm().peers.Ended(rank)) return true;
  for (int r = 0; r < comm().nranks(); ++r) {
    if (r != comm().rank() && !left(r)) return false;
  }
  return true;
}

std::string RecvOp::TellUnmatched(Comm& comm) const {
  constexpr size_t kMostText = 200;
  if (comm.matcher.Matched(pending_)) return "";
  std::string found;
  const bool any = spec_.peer == OCCL_ANY_SOURCE;
  for (int r = any ? 0 : spec_.peer; r < (any ? comm.nranks() : spec_.peer + 1); ++r) {
    std::vector<int> tags = comm.matcher.Unmatched(r, comm.segment().message_places());
    if (tags.empty() || found.size() > kMostText) continue;
    found +=
        (found.empty() ? "" : "; ") + TagList(std::move(tags)) + " from rank " + std::to_string(r);
  }
  if (found.empty()) return "";
  return "; this receive takes " + TagName(spec_.tag) + ", what has come and is not received has " +
         found;
}

Status RecvOp::Compare() const {
  const MessageHead& head = pending_.head;
  const auto differ = [&](const char* field, const std::string& own, const std::string& found) {
    return Error(occlMismatch,
                 "%s with tag %d: the ranks disagree about the %s: rank %d expects %s, rank %s "
                 "sends %s",
                 Title().c_str(), head.tag, field, comm().rank(), own.c_str(),
                 comm().peers.Name(pending_.source).c_str(), found.c_str());
  };
  if (head.datatype != spec_.datatype) {
    return differ("datatype", DataTypeName(spec_.datatype), DataTypeName(head.datatype));
  }
  if (head.count != spec_.count) {
    return differ("count", std::to_string(spec_.count), std::to_string(head.count));
  }
  return Status();
}

// Who sends has joined before.
void RecvOp::ReachSenders() {
  const bool any = spec_.peer == OCCL_ANY_SOURCE;
  for (int r = any ? 0 : spec_.peer; r < (any ? comm().nranks() : spec_.peer + 1); ++r) {
    comm().presence.Reach(r);
  }
}

StepResult RecvOp::Step() {
  if (!comm().matcher.Match(&pending_)) {
    ReachSenders();
    return StepResult::kWaiting;
  }
  if (!comm().presence.Reach(pending_.source)) return StepResult::kWaiting;
  if (!compared_) {
    Started();
    const Status same = Compare();
    if (!same.ok()) return FailComm(same);
    compared_ = true;
  }
  if (pending_.head.path == static_cast<uint8_t>(DataPath::kSlot)) return TakeChunks();
  return CopyBlock();
}

StepResult RecvOp::TakeChunks() {
  ControlSegment& segment = comm().segment();
  StageWords& words = segment.stage_words(pending_.source, comm().rank());
  const uint64_t first = StageWord(pending_.sequence, 0);
  if (!stage_claimed_) {
    if (!comm().matcher.ClaimStage(pending_.source)) return StepResult::kWaiting;
    stage_claimed_ = true;
    words.taken.store(first, std::memory_order_release);
    comm().bells.RingAll();
  }
  const uint64_t size = spec_.size_bytes();
  const uint64_t sent = words.sent.load(std::memory_order_acquire);
  if (sent <= first + chunks_ || sent > first + chunks_ + 2) return StepResult::kWaiting;
  const uint64_t chunk = std::min<uint64_t>(size - position_bytes_, segment.stage_chunk_bytes());
  std::memcpy(spec_.data + position_bytes_, segment.stage(pending_.source, comm().rank(), chunks_),
              chunk);
  position_bytes_ += chunk;
  comm().message_stats.bytes_moved.Add(chunk);
  words.taken.store(first + ++chunks_, std::memory_order_release);
  comm().bells.RingAll();
  if (position_bytes_ < size) return StepResult::kMoved;
  comm().matcher.ReleaseStage(pending_.source);
  comm().bells.RingOwn();
  return EndMessage();
}

StepResult RecvOp::CopyBlock() {
  const int source = pending_.source;
  const uint64_t size = spec_.size_bytes();
  const uint64_t block = std::min(size - position_bytes_, kBlockBytes);
  if (block < size && position_bytes_ == 0) {
    // The sender need not sleep.
    comm()
        .segment()
        .stage_words(source, comm().rank())
        .taken.store(StageWord(pending_.sequence, 0), std::memory_order_relaxed);
  }
  if (size > 0) {
    const unsigned char* data = nullptr;
    if (pending_.head.path == static_cast<uint8_t>(DataPath::kInline)) {
      if (size <= kInlineBytes) {
        data = comm().segment().message(source, comm().rank(), pending_.sequence).inline_data;
      }
    } else if (const PeerArena* arena = comm().arena(source)) {
      data = arena->At(pending_.head.offset, size);
    }
    if (data == nullptr) {
      return FailComm(Error(occlInternalError,
                            "%s: rank %s named memory outside its device: its control data is "
                            "damaged",
                            Title().c_str(), comm().peers.Name(source).c_str()));
    }
    reduce::Copy(spec_.data + position_bytes_, data + position_bytes_, block, CopyModeFor(size));
    position_bytes_ += block;
    comm().message_stats.bytes_moved.Add(block);
  }
  return position_bytes_ < size ? StepResult::kMoved : EndMessage();
}

// Tells the sender that its buffer, and the message's place, are free.
StepResult RecvOp::EndMessage() {
  comm()
      .segment()
      .message_read(pending_.source, comm().rank(), pending_.sequence)
      .store(pending_.sequence, std::memory_order_release);
  comm().bells.RingAll();
  return FinishOk();
}

}  // namespace occl
