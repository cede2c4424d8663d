// A transport that misbehaves on request: what a rank posts comes late, cut, or not at all. While
// no faults are asked for, an operation pays one relaxed load.
#ifndef OCCL_TRANSPORT_FAULTY_FAULTY_H_
#define OCCL_TRANSPORT_FAULTY_FAULTY_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "occl/api/occl_faults.h"
#include "occl/base/status.h"

namespace occl::faulty {

// What befalls one operation.
enum class Fault : uint8_t { kNone, kDelay, kDrop, kTruncate, kReset };

// Which operation: the number counts those of this rank in the communicator, of messages those of
// this rank to or from the peer.
struct Place {
  std::string_view communicator;
  int rank;
  int peer;  // -1: a collective
  uint64_t number;
};

struct Decision {
  Fault fault = Fault::kNone;
  int64_t delay_ns = 0;  // kDelay
  uint64_t seed = 0;     // for messages
};

inline std::atomic<bool> armed{false};

Status SetFaults(const occlFaults_t* faults);
void GetCounts(uint64_t counts[occlNumFaults]);
// Pure but for the counts: the same place gets the same fault.
Decision DecideArmed(const Place& place);

inline Decision Decide(const Place& place) {
  if (!armed.load(std::memory_order_relaxed)) [[likely]]
    return {};
  return DecideArmed(place);
}

}  // namespace occl::faulty

#endif  // OCCL_TRANSPORT_FAULTY_FAULTY_H_
