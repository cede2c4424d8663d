// How a rank joins a communicator without waiting for the others: the rank that comes first makes
// the control segment and listens on a socket. Every rank that comes gets the segment and that
// socket, and hands both on to those who come later: the segment can be had as long as the process
// of any rank that has joined lives. Ranks then find each other in the segment.
//
// Nobody listens any more: all who joined have gone. Of those who come then, one makes the next
// generation of the segment, in which those who have left are marked.
#ifndef OCCL_BOOTSTRAP_KEEPER_H_
#define OCCL_BOOTSTRAP_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/rendezvous.h"

namespace occl {

// What every rank that has joined holds.
struct Kept {
  UniqueFd file;  // of the segment
  UniqueFd listener;
};

// Serves until all ranks have come, however soon the communicator of this rank is destroyed; after
// that for Doorman::kGrace_ms only, and as long as its process lives.
class Keeper {
 public:
  // What to do with the segment where nobody can be let in any more, from another thread.
  using Fail = std::function<void(ControlSegment*, int rank, const Status&)>;

  // The first of `generation`: serves `file`, mapped as `segment`, to the ranks that `meeting`
  // brings. *info: who this is.
  static Status Start(Meeting* meeting, const RendezvousOptions& options, uint32_t generation,
                      UniqueFd file, std::shared_ptr<ControlSegment> segment, Fail fail,
                      LeaderInfo* info, std::shared_ptr<Keeper>* keeper);
  // Another: serves what it was given, unless all ranks have come.
  // Takes *kept unless it fails.
  static Status GoOn(const RendezvousOptions& options, const LeaderInfo& info, Kept* kept,
                     std::shared_ptr<ControlSegment> segment, Fail fail,
                     std::shared_ptr<Keeper>* keeper);
  explicit Keeper(uint64_t door) : door_(door) {}
  // The communicator goes.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  const uint64_t door_;
};

// Gets the segment from any of those who have it; `meeting` names the first of them. *info: who
// that is. Success with an invalid kept->file: they have all gone.
Status FetchSegment(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                    Kept* kept);
// The same. Success with an invalid kept->file: and this rank is to make the next generation.
Status FetchOrInherit(Meeting* meeting, const RendezvousOptions& options, LeaderInfo* info,
                      Kept* kept);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_KEEPER_H_
