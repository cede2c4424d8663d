// How a rank joins a communicator without waiting for the others: the rank that comes first makes
// the control segment and becomes its keeper, who hands it to each of the others when they come.
// Ranks then find each other in the segment.
#ifndef OCCL_BOOTSTRAP_KEEPER_H_
#define OCCL_BOOTSTRAP_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/rendezvous.h"

namespace occl {

// Serves until all ranks have come, however soon the keeper's own communicator is destroyed; after
// that for Doorman::kGrace_ms only.
class Keeper {
 public:
  // What to do with the segment where nobody can be let in any more, from another thread.
  using Fail = std::function<void(ControlSegment*, int rank, const Status&)>;

  // Serves `file`, mapped as `segment`, to the ranks that `meeting` brings.
  static Status Start(Meeting* meeting, const RendezvousOptions& options, UniqueFd file,
                      std::shared_ptr<ControlSegment> segment, Fail fail, LeaderInfo* info,
                      std::shared_ptr<Keeper>* keeper);
  explicit Keeper(uint64_t door) : door_(door) {}
  // The keeper's communicator goes.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  const uint64_t door_;
};

// Gets the segment from the keeper, whom `meeting` names. *info: who that is.
Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    UniqueFd* segment);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_KEEPER_H_
