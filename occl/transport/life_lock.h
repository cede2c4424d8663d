// What tells ranks that a peer's program has ended where its pid tells nothing: in another pid
// namespace, or after exec.
#ifndef OCCL_TRANSPORT_LIFE_LOCK_H_
#define OCCL_TRANSPORT_LIFE_LOCK_H_

#include <memory>

#include "occl/base/status.h"
#include "occl/base/unique_fd.h"

namespace occl {

// One byte of the control segment's file is locked for each rank (F_OFD_SETLK), through an open
// file description that nobody shares: the kernel lets it go when the process ends or calls exec.
// Forked children close theirs, so they do not hold it for their parent.
class LifeLock {
 public:
  // occlMismatch: the place of `rank` is taken.
  static Status Take(const UniqueFd& segment_file, int rank, std::unique_ptr<LifeLock>* lock);

  LifeLock(const LifeLock&) = delete;
  LifeLock& operator=(const LifeLock&) = delete;
  ~LifeLock();

  // Whether `rank` holds its lock; this rank's own counts as held. One system call.
  bool IsHeld(int rank) const;

 private:
  struct Forks;
  LifeLock(UniqueFd file, int rank);

  const int rank_;
  UniqueFd file_;
};

}  // namespace occl

#endif  // OCCL_TRANSPORT_LIFE_LOCK_H_
