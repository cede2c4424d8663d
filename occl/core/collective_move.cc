// How a collective's data moves once the ranks agree: copies, reductions, large all_reduces. Every
// step moves at most about a block, so that aborts and other operations of a group get their turn.
#include <algorithm>
#include <cstring>

#include "occl/base/fence.h"
#include "occl/core/algorithms.h"
#include "occl/core/collective_op.h"
#include "occl/reduce/copy.h"
#include "occl/schedule/partition.h"

namespace occl {
namespace {

constexpr uint64_t kBlockBytes = 256 * 1024;

uint64_t BlockElements(uint32_t element_bytes) { return kBlockBytes / element_bytes; }

// Reduces a block of results of `total_bytes` each.
void Reduce(const reduce::Plan& plan, CollectiveScratch* scratch, int results, int sources,
            uint64_t block, uint64_t total_bytes) {
  reduce::ReduceArgs args;
  args.scales = scratch->scales.data();
  args.avg_divisor = sources;
  void* const* const to = scratch->destinations.data();
  const void* const* const from = scratch->sources.data();
  // Results over inputs are in the cache already.
  const auto is_source = [&](const void* result) {
    return std::find(from, from + sources, result) != from + sources;
  };
  args.stream = CopyModeFor(total_bytes) == reduce::CopyMode::kStream &&
                std::none_of(to, to + results, is_source);
  reduce::Run(plan, to, results, from, sources, block, args);
}

}  // namespace

Part CollectiveOp::Source(int peer) {
  if (peer == comm().rank()) {
    Part part = spec_.SendPart(doer_);
    if (part.count <= window_start_) return {nullptr, 0};
    part.data += window_start_ * spec_.element_bytes;
    part.count = std::min(part.count - window_start_, window_count_);
    return part;
  }
  const RoundHead& head = comm().scratch.heads[peer];
  const int index = spec_.part_per_rank ? doer_ : 0;
  uint64_t count = spec_.count;
  if (spec_.uneven) count = spec_.RecvPart(peer).count;  // equal to the peer's: CompareParts
  if (count <= window_start_) return {nullptr, 0};
  count = std::min(count - window_start_, window_count_);
  const uint64_t bytes = count * spec_.element_bytes;
  RoundEntry& entry = comm().segment().round(peer, round_);
  switch (static_cast<DataPath>(head.path)) {
    case DataPath::kInline: {
      const uint64_t offset = index * bytes;
      return {offset + bytes <= kInlineBytes ? entry.inline_data + offset : nullptr, count};
    }
    case DataPath::kSlot: {
      const uint64_t parts = spec_.part_per_rank ? comm().nranks() : 1;
      const uint64_t window = kSlotBytes / (parts * spec_.element_bytes);
      if (count > window) return {nullptr, count};
      return {comm().segment().slot(peer, round_) + index * window * spec_.element_bytes, count};
    }
    case DataPath::kDirect: {
      const PeerArena* arena = comm().arena(peer);
      if (arena == nullptr) return {nullptr, count};
      if (spec_.uneven) {
        const PartEntry part = CopyOut(comm().segment().parts(peer, round_)[index]);
        return {arena->At(part.offset, bytes), count};
      }
      const uint64_t skip = index * spec_.count * spec_.element_bytes;
      if (head.send_offset > UINT64_MAX - skip) return {nullptr, count};
      return {arena->At(head.send_offset + skip, bytes), count};
    }
  }
  return {nullptr, count};
}

StepResult CollectiveOp::BadSource(int peer) {
  return FailComm(Error(occlInternalError,
                        "%s: rank %s named memory outside its device: its control data is damaged",
                        Title().c_str(), comm().peers.Name(peer).c_str()));
}

StepResult CollectiveOp::Move() {
  if (doer_ < 0) return TakeJob();
  if (shared_out()) return ReduceShareBlock();
  return spec_.reduces ? ReduceBlock() : CopyBlock();
}

// All that is to be done for doer_.
StepResult CollectiveOp::EndPart() { return jobs_ ? EndJob() : EndRound(); }

// One block of the part of peer_, or the whole part and on to the next peers while they are small.
StepResult CollectiveOp::CopyBlock() {
  const int n = comm().nranks(), rank = doer_;
  uint64_t budget = BlockElements(spec_.element_bytes);
  for (; peer_ < n; ++peer_, position_ = 0) {
    const int peer = (rank + peer_) % n;  // each rank starts with itself: not all at one owner
    if (!spec_.Reads(rank, peer)) continue;
    const Part source = Source(peer);
    if (source.count == 0) continue;
    if (source.data == nullptr) return BadSource(peer);
    const uint64_t count = std::min(source.count - position_, budget);
    unsigned char* const destination = Destination(peer, count);
    if (destination == nullptr) return BadSource(rank);
    const unsigned char* from = source.data + position_ * spec_.element_bytes;
    if (from == destination) continue;
    reduce::Copy(destination, from, count * spec_.element_bytes,
                 CopyModeFor(source.count * spec_.element_bytes));
    if (peer != rank) {
      comm().collective_stats.bytes_moved.AddAlone(count * spec_.element_bytes);
    }
    position_ += count;
    budget -= count;
    if (position_ < source.count) return StepResult::kMoved;
  }
  return EndPart();
}

StepResult CollectiveOp::ReduceBlock() {
  const int n = comm().nranks(), rank = doer_;
  if (!spec_.Reads(rank, rank)) return EndRound();  // not the root
  uint64_t total = 0, block = 0;
  for (int peer = 0; peer < n; ++peer) {
    const Part source = Source(peer);
    total = source.count;
    if (total == 0) return EndPart();
    if (source.data == nullptr) return BadSource(peer);
    block = std::min(total - position_, BlockElements(spec_.element_bytes));
    comm().scratch.sources[peer] = source.data + position_ * spec_.element_bytes;
  }
  comm().scratch.destinations[0] = Destination(0, block);
  if (comm().scratch.destinations[0] == nullptr) return BadSource(rank);
  Reduce(spec_.plan, &comm().scratch, 1, n, block, total * spec_.element_bytes);
  comm().collective_stats.bytes_moved.AddAlone(block * spec_.element_bytes * (n - 1));
  position_ += block;
  return position_ == total ? EndPart() : StepResult::kMoved;
}

// Reduces a block of this rank's share of all inputs into the results.
StepResult CollectiveOp::ReduceShareBlock() {
  const int n = comm().nranks(), rank = comm().rank();
  const schedule::Range share = schedule::ShareOf(spec_.count, spec_.element_bytes, n, doer_);
  if (share.count == 0) return EndPart();
  if (position_ == 0 && !jobs_) {
    const StepResult looked = LookBeforeWriting();
    if (looked != StepResult::kMoved) return looked;
  }
  const uint64_t start = share.begin + position_;
  const uint64_t block =
      std::min(share.count - position_, schedule::BlockElements(spec_.element_bytes, n));
  const uint64_t bytes = block * spec_.element_bytes, skip = start * spec_.element_bytes;
  int results = 0;
  for (int peer = 0; peer < n; ++peer) {
    const Part source = Source(peer);
    if (source.data == nullptr) return BadSource(peer);
    comm().scratch.sources[peer] = source.data + skip;
    if (!HasResult(peer)) continue;
    unsigned char* const destination = peer == rank ? spec_.recv + skip : Result(peer, skip, bytes);
    if (destination == nullptr) return BadSource(peer);
    comm().scratch.destinations[results++] = destination;
  }
  Reduce(spec_.plan, &comm().scratch, results, n, block, spec_.count * spec_.element_bytes);
  const int written = results - (HasResult(rank) ? 1 : 0);
  comm().collective_stats.bytes_moved.AddAlone(bytes * (n - 1 + written));
  position_ += block;
  return position_ == share.count ? EndPart() : StepResult::kMoved;
}

// See quarantine.h: a rank that has failed by now must not be written to.
StepResult CollectiveOp::LookBeforeWriting() {
  FullFence();
  return comm().good() ? StepResult::kMoved : FailComm(comm().failure());
}

// Where what comes from `peer` goes, position_ elements in.
unsigned char* CollectiveOp::Destination(int peer, uint64_t count) const {
  const uint64_t skip_bytes = (window_start_ + position_) * spec_.element_bytes;
  if (doer_ == comm().rank()) return spec_.RecvPart(peer).data + skip_bytes;
  const uint64_t parts = spec_.TakesOne() ? 0 : static_cast<uint64_t>(peer);
  return Result(doer_, parts * spec_.count * spec_.element_bytes + skip_bytes,
                count * spec_.element_bytes);
}

unsigned char* CollectiveOp::Result(int peer, uint64_t skip_bytes, uint64_t size_bytes) const {
  const PeerArena* arena = comm().arena(peer);
  const uint64_t base = comm().scratch.heads[peer].recv_offset;
  if (arena == nullptr || base > UINT64_MAX - skip_bytes) return nullptr;
  return arena->At(base + skip_bytes, size_bytes);
}

}  // namespace occl
