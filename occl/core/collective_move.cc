// How a collective's data moves once the ranks agree: copies, reductions, the two halves of a large
// all_reduce. Every step moves at most about a block, so that aborts and other operations of a
// group get their turn.
#include <algorithm>
#include <cstring>

#include "occl/core/collective_op.h"

namespace occl {
namespace {

constexpr uint64_t kBlockBytes = 256 * 1024;

uint64_t BlockElements(uint32_t element_bytes) { return kBlockBytes / element_bytes; }

}  // namespace

Part CollectiveOp::Source(int peer) {
  const int rank = comm().rank();
  if (peer == rank) {
    Part part = spec_.SendPart(rank);
    if (part.count <= window_start_) return {nullptr, 0};
    part.data += window_start_ * spec_.element_bytes;
    part.count = std::min(part.count - window_start_, window_count_);
    return part;
  }
  const RoundHead& head = comm().scratch.heads[peer];
  const int index = spec_.part_per_rank ? rank : 0;
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
  StepResult result;
  if (large_all_reduce()) {
    result = ReduceShareBlock();
  } else if (spec_.reduces) {
    result = ReduceBlock();
  } else {
    result = CopyBlock();
  }
  return result;
}

// One block of the part of peer_, or the whole part and on to the next peers while they are small.
StepResult CollectiveOp::CopyBlock() {
  const int n = comm().nranks(), rank = comm().rank();
  uint64_t budget = BlockElements(spec_.element_bytes);
  for (; peer_ < n; ++peer_, position_ = 0) {
    const int peer = (rank + peer_) % n;  // each rank starts with itself: not all at one owner
    if (!spec_.Reads(rank, peer)) continue;
    const Part source = Source(peer);
    if (source.count == 0) continue;
    if (source.data == nullptr) return BadSource(peer);
    unsigned char* destination =
        spec_.RecvPart(peer).data + (window_start_ + position_) * spec_.element_bytes;
    const unsigned char* from = source.data + position_ * spec_.element_bytes;
    if (from == destination) continue;
    const uint64_t count = std::min(source.count - position_, budget);
    std::memcpy(destination, from, count * spec_.element_bytes);
    if (peer != rank) {
      comm().stats.bytes_moved.fetch_add(count * spec_.element_bytes, std::memory_order_relaxed);
    }
    position_ += count;
    budget -= count;
    if (position_ < source.count) return StepResult::kMoved;
  }
  return EndRound();
}

StepResult CollectiveOp::ReduceBlock() {
  const int n = comm().nranks(), rank = comm().rank();
  if (!spec_.Reads(rank, rank)) return EndRound();  // not the root
  uint64_t total = 0, block = 0;
  for (int peer = 0; peer < n; ++peer) {
    const Part source = Source(peer);
    total = source.count;
    if (total == 0) return EndRound();
    if (source.data == nullptr) return BadSource(peer);
    block = std::min(total - position_, BlockElements(spec_.element_bytes));
    comm().scratch.sources[peer] = source.data + position_ * spec_.element_bytes;
  }
  void* destination = spec_.RecvPart(0).data + (window_start_ + position_) * spec_.element_bytes;
  reduce::ReduceArgs args;
  args.scales = comm().scratch.scales.data();
  args.avg_divisor = n;
  reduce::Run(spec_.plan, &destination, 1, comm().scratch.sources.data(), n, block, args);
  comm().stats.bytes_moved.fetch_add(block * spec_.element_bytes * (n - 1),
                                     std::memory_order_relaxed);
  position_ += block;
  return position_ == total ? EndRound() : StepResult::kMoved;
}

// Shares begin at multiples of 16 elements, so that vector kernels start aligned.
void CollectiveOp::ShareOf(int rank, uint64_t* begin, uint64_t* end) const {
  constexpr uint64_t kAlign = 16;
  const uint64_t n = comm().nranks();
  const uint64_t share = (spec_.count / n + kAlign) / kAlign * kAlign;
  *begin = std::min(share * rank, spec_.count);
  *end = std::min(*begin + share, spec_.count);
}

// First half: reduces a block of this rank's share of all inputs into its own result. Nobody else
// reads this share of the inputs, so the result may lie over the input.
StepResult CollectiveOp::ReduceShareBlock() {
  const int n = comm().nranks(), rank = comm().rank();
  uint64_t begin, end;
  ShareOf(rank, &begin, &end);
  const uint64_t start = begin + position_;
  const uint64_t block = std::min(end - start, BlockElements(spec_.element_bytes));
  if (block > 0) {
    for (int peer = 0; peer < n; ++peer) {
      const Part source = Source(peer);
      if (source.data == nullptr) return BadSource(peer);
      comm().scratch.sources[peer] = source.data + start * spec_.element_bytes;
    }
    void* destination = spec_.recv + start * spec_.element_bytes;
    reduce::ReduceArgs args;
    args.scales = comm().scratch.scales.data();
    args.avg_divisor = n;
    reduce::Run(spec_.plan, &destination, 1, comm().scratch.sources.data(), n, block, args);
    comm().stats.bytes_moved.fetch_add(block * spec_.element_bytes * (n - 1),
                                       std::memory_order_relaxed);
    position_ += block;
    comm().block(rank).progress.store(ProgressWord(++blocks_), std::memory_order_release);
    comm().bells.RingAll();
  }
  if (begin + position_ < end) return StepResult::kMoved;
  peer_ = (rank + 1) % n;
  position_ = 0;
  blocks_ = 0;
  phase_ = Phase::kShare;
  return StepResult::kMoved;
}

// Second half: takes the blocks that the others have finished, over this rank's input where that is
// in place: the owner of a share has read this rank's part of it when it says it is finished.
StepResult CollectiveOp::Share() {
  const int n = comm().nranks(), rank = comm().rank();
  while (peer_ != rank) {
    uint64_t begin, end;
    ShareOf(peer_, &begin, &end);
    if (begin + position_ < end) {
      const uint64_t progress = comm().block(peer_).progress.load(std::memory_order_acquire);
      if (progress < ProgressWord(blocks_ + 1)) return StepResult::kWaiting;
      const uint64_t start = begin + position_;
      const uint64_t block = std::min(end - start, BlockElements(spec_.element_bytes));
      const uint64_t bytes = block * spec_.element_bytes;
      const uint64_t skip = start * spec_.element_bytes;
      const uint64_t base = comm().scratch.heads[peer_].recv_offset;
      const PeerArena* arena = comm().arena(peer_);
      const unsigned char* source =
          arena == nullptr || base > UINT64_MAX - skip ? nullptr : arena->At(base + skip, bytes);
      if (source == nullptr) return BadSource(peer_);
      std::memcpy(spec_.recv + skip, source, bytes);
      comm().stats.bytes_moved.fetch_add(bytes, std::memory_order_relaxed);
      position_ += block;
      ++blocks_;
      return StepResult::kMoved;
    }
    peer_ = (peer_ + 1) % n;
    position_ = 0;
    blocks_ = 0;
  }
  return EndRound();
}

}  // namespace occl
