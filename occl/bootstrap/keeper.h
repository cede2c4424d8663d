// How a rank joins a communicator without waiting for the others: the rank that comes first makes
// the control segment and becomes its keeper, who hands it to each of the others when they come.
// Ranks then find each other in the segment.
#ifndef OCCL_BOOTSTRAP_KEEPER_H_
#define OCCL_BOOTSTRAP_KEEPER_H_

#include <atomic>
#include <memory>

#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/rendezvous.h"

namespace occl {

// A thread that serves until all ranks have come, however soon the keeper's own communicator is
// destroyed; after that for kGrace_ms only. Thread-safe.
class Keeper {
 public:
  static constexpr int64_t kGrace_ms = 60'000;

  // Serves `segment` to the ranks that `meeting` brings.
  static Status Start(Meeting* meeting, const RendezvousOptions& options, UniqueFd segment,
                      LeaderInfo* info, std::shared_ptr<Keeper>* keeper);
  // The keeper's communicator goes.
  void Retire() { retired_.store(true, std::memory_order_relaxed); }

 private:
  struct Server;
  std::atomic<bool> retired_{false};
};

// Gets the segment from the keeper, whom `meeting` names. *info: who that is.
Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    UniqueFd* segment);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_KEEPER_H_
