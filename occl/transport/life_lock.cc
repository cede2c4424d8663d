#include "occl/transport/life_lock.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace occl {
namespace {

struct flock ByteOf(int rank) {
  struct flock byte = {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = rank;
  byte.l_len = 1;
  return byte;
}

}  // namespace

// All locks of this process. A fork waits until none is being taken or let go.
struct LifeLock::Forks {
  static Forks& Get() {
    static Forks* const forks = new Forks;  // outlives every thread
    return *forks;
  }
  Forks() { pthread_atfork(&Before, &InParent, &InChild); }

  static void Before() { Get().mutex.lock(); }
  static void InParent() { Get().mutex.unlock(); }
  static void InChild() {
    for (LifeLock* lock : Get().locks) lock->file_.Reset();
    Get().mutex.unlock();
  }

  std::mutex mutex;
  std::set<LifeLock*> locks;  // guarded by mutex
};

Status LifeLock::Take(const UniqueFd& segment_file, int rank, std::unique_ptr<LifeLock>* lock) {
  const std::string path = "/proc/self/fd/" + std::to_string(segment_file.get());
  Forks& forks = Forks::Get();
  std::lock_guard<std::mutex> guard(forks.mutex);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) {
    return SystemError(
        errno, "opening %s, the control segment, for the lock of rank %d (OCCL needs /proc)",
        path.c_str(), rank);
  }
  struct flock byte = ByteOf(rank);
  if (fcntl(file.get(), F_OFD_SETLK, &byte) != 0) {
    if (errno == EAGAIN || errno == EACCES) {
      return Error(occlMismatch, "rank %d has joined already: two claim its place", rank);
    }
    return SystemError(errno, "locking the place of rank %d in the control segment", rank);
  }
  lock->reset(new LifeLock(std::move(file), rank));
  forks.locks.insert(lock->get());
  return Status();
}

LifeLock::LifeLock(UniqueFd file, int rank) : rank_(rank), file_(std::move(file)) {}

LifeLock::~LifeLock() {
  Forks& forks = Forks::Get();
  std::lock_guard<std::mutex> guard(forks.mutex);
  forks.locks.erase(this);
  file_.Reset();
}

bool LifeLock::IsHeld(int rank) const {
  struct flock byte = ByteOf(rank);
  return rank == rank_ || fcntl(file_.get(), F_OFD_GETLK, &byte) != 0 || byte.l_type != F_UNLCK;
}

}  // namespace occl
