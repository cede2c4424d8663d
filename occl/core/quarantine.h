// Result buffers that a peer may still write after their operation has failed.
//
// In a large all_reduce or reduce every rank writes its share into the results. When the operation
// fails on one rank, others may be in the middle of a block, or stopped there. Such a buffer is
// held in the runtime (orMemRetain), so that a block freed by its owner is not given to anybody
// else, until every peer says that it writes no more. What a stopped peer never lets go stays held.
//
// A rank writes only after all ranks' entries of the round are there and then, in sequentially
// consistent order, no failure. So an entry that is missing after the failure means that nobody
// writes.
#ifndef OCCL_CORE_QUARANTINE_H_
#define OCCL_CORE_QUARANTINE_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "occl/base/clock.h"
#include "occl/core/bells.h"
#include "occl/core/peers.h"
#include "occl/transport/control_segment.h"

namespace occl {

class Quarantine {
 public:
  Quarantine(ControlSegment* segment, int rank, Bells* bells, Peers* peers)
      : segment_(*segment), rank_(rank), bells_(*bells), peers_(*peers) {}

  // After the communicator has failed: holds the buffer unless nobody writes in `round` any more.
  void Take(void* device_pointer, uint64_t round);
  // Waits for the peers that are still writing, then lets go what nobody writes any more. Returns
  // how many buffers stay held.
  size_t Drain(const Deadline& deadline);

 private:
  struct Buffer {
    void* device_pointer;
    uint64_t round;
  };

  bool IsOver(uint64_t round);
  // Lets go what is over; requires mutex_.
  void Sweep();

  ControlSegment& segment_;
  const int rank_;
  Bells& bells_;
  Peers& peers_;

  std::mutex mutex_;
  std::vector<Buffer> held_;  // guarded by mutex_
};

}  // namespace occl

#endif  // OCCL_CORE_QUARANTINE_H_
