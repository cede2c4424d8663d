// What failed on the workers of streams, until the user has been told.
#ifndef PYTHON_CSRC_RUNTIME_ASYNC_FAILURES_H_
#define PYTHON_CSRC_RUNTIME_ASYNC_FAILURES_H_

#include <atomic>
#include <exception>
#include <memory>
#include <string>

#include "openreg/api/openreg.h"

namespace torch_openreg {

// On whose behalf work was queued: one communicator of a process group on this rank, which dies
// once. When the user has been told that it died and has ended it, what streams still hold of its
// failure is forgotten: nobody is told again, and the streams go on, as after ncclCommAbort. Before
// that, and of an owner that was ended before anybody was told, nothing is. Thread-safe; never goes
// back.
class FailureOwner {
 public:
  // A failure of it was raised on a thread of the user's.
  void tell() { told_.store(true); }
  // The user has aborted, shrunk or destroyed it.
  void end() { ended_.store(true); }
  bool ended() const { return ended_.load(); }
  bool forgotten() const { return told_.load() && ended_.load(); }

 private:
  std::atomic<bool> told_{false};
  std::atomic<bool> ended_{false};
};
using FailureOwnerPtr = std::shared_ptr<FailureOwner>;

// Work that threw.
struct AsyncFailure {
  orStream_t stream = nullptr;
  int device = 0;
  const char* name = nullptr;  // static storage
  std::exception_ptr exception;
};

// Notes what work threw, for the exception that the next synchronise or query raises. Returns what
// the kernel leaves on its stream: orErrorNotedFailure, orErrorLaunchFailure if there was no room
// for the note, or orSuccess if it is a c10::DistError of an owner that is forgotten. Thread-safe;
// bounded.
orError_t note_async_failure(const AsyncFailure& failure, const FailureOwnerPtr& owner) noexcept;

// Where an error was read, which the runtime has cleared there: a stream, all streams of a device,
// or (neither) a stream that is not known.
struct ErrorSource {
  orStream_t stream = nullptr;
  int device = -1;
};

struct ToldFailures {
  std::string text;                // "" if there is nothing to tell
  std::exception_ptr distributed;  // the first c10::DistError among them
  bool forgotten = false;          // the error may stand for failures that are forgotten
};

// What there is to tell of an error. The runtime hands an error on to streams that wait for the one
// where it was left, and keeps one a stream: which failure it stands for is not known, so those of
// the other streams are told as well. An error of theirs that the runtime still has is told with
// the same words again, wherever it is read. So an error stands for nothing only where all that is
// noted is forgotten. `all`: those that are forgotten are told where there is nothing else.
ToldFailures tell_async_failures(const ErrorSource& source, bool all);

// The runtime has no error on `stream`, which the calling thread holds: what was told is over.
void settle_async_failures(orStream_t stream) noexcept;

namespace detail {
// True while a failure is noted that is not forgotten. Relaxed: a hint, read in hot paths; the
// thread that emptied the stream sees what its worker noted.
extern std::atomic<bool> async_failure_noted;
}  // namespace detail

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_ASYNC_FAILURES_H_
