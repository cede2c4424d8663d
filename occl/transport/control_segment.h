// A communicator's control segment, mapped: where everything in it is.
#ifndef OCCL_TRANSPORT_CONTROL_SEGMENT_H_
#define OCCL_TRANSPORT_CONTROL_SEGMENT_H_

#include <cstddef>
#include <memory>

#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/transport/control_layout.h"

namespace occl {

class ControlSegment {
 public:
  // A new segment for nranks ranks, zeroed, sealed against shrinking and growing.
  static Status Create(int nranks, UniqueFd* fd);
  // Maps the segment behind fd. Ranks that are threads of one process share one mapping (a word has
  // one address in a process). Refuses a file that is not sealed, too small or not a segment for
  // nranks: reading it could fault.
  static Status Map(const UniqueFd& fd, int nranks, std::shared_ptr<ControlSegment>* segment);

  ControlSegment(const ControlSegment&) = delete;
  ControlSegment& operator=(const ControlSegment&) = delete;
  ~ControlSegment();

  int nranks() const { return nranks_; }
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankBlock& rank(int rank) { return ranks_[rank]; }
  RoundEntry& round(int rank, uint64_t round) { return ranks_[rank].rounds[round % kRoundPlaces]; }
  JobWords& job(int rank, uint64_t round) { return ranks_[rank].jobs[round % kRoundPlaces]; }
  // Says what `rank`, this process's own, has failed with; its first failure stays. True: it is the
  // first of all ranks, the one that counts. Whoever sleeps is to be rung for afterwards.
  bool PostError(int rank, occlResult_t code, const char* message);
  // nranks parts of `rank` in the round.
  PartEntry* parts(int rank, uint64_t round) {
    return parts_ + (size_t{kRoundPlaces} * rank + round % kRoundPlaces) * nranks_;
  }
  // kSlotBytes of `rank` in the round.
  unsigned char* slot(int rank, uint64_t round) {
    return slots_ + (size_t{kRoundPlaces} * rank + round % kRoundPlaces) * kSlotBytes;
  }
  // Messages from `source` (who writes the entry) to `destination`.
  int message_places() const { return message_places_; }
  MessageEntry& message(int source, int destination, uint64_t sequence) {
    return messages_[Pair(source, destination) * message_places_ + sequence % message_places_];
  }
  // Written by the destination: the sequence of the last message in this place that it has read.
  std::atomic<uint64_t>& message_read(int source, int destination, uint64_t sequence) {
    return messages_read_[Pair(destination, source) * message_places_ + sequence % message_places_];
  }
  // The staging channel from `source` to `destination`: its words and stage_chunk_bytes() twice.
  size_t stage_chunk_bytes() const { return stage_chunk_bytes_; }
  StageWords& stage_words(int source, int destination) {
    return stage_words_[Pair(source, destination)];
  }
  unsigned char* stage(int source, int destination, uint64_t chunk) {
    return stages_ + (2 * Pair(source, destination) + chunk % 2) * stage_chunk_bytes_;
  }

 private:
  ControlSegment(unsigned char* base, size_t size_bytes, int nranks);
  size_t Pair(int writer, int other) const { return size_t(writer) * nranks_ + other; }

  // Constant after construction.
  unsigned char* const base_;
  const size_t size_bytes_;
  const int nranks_;
  const int message_places_;
  const size_t stage_chunk_bytes_;
  RankBlock* ranks_;
  PartEntry* parts_;
  MessageEntry* messages_;
  std::atomic<uint64_t>* messages_read_;
  unsigned char* slots_;
  StageWords* stage_words_;
  unsigned char* stages_;
};

}  // namespace occl

#endif  // OCCL_TRANSPORT_CONTROL_SEGMENT_H_
