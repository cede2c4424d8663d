// How far the host of this process runs ahead of its operations: a Work holds its tensors until it
// is done, so a program that issues without ever waiting would hold memory without bound.
#ifndef PYTHON_CSRC_C10D_BACKLOG_H_
#define PYTHON_CSRC_C10D_BACKLOG_H_

#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace at {
class Tensor;
}

namespace torch_openreg {

// One operation's part of the backlog. Not thread-safe.
class BacklogShare {
 public:
  // The operation holds these tensors from now on.
  explicit BacklogShare(c10::ArrayRef<at::Tensor> tensors);
  BacklogShare(const BacklogShare&) = delete;
  BacklogShare& operator=(const BacklogShare&) = delete;
  ~BacklogShare() { end(); }

  // It is done. Calls after the first one have no effect.
  void end();

 private:
  std::int64_t bytes_ = 0;  // -1: it has ended
};

// Before an operation is issued: while 1,024 run, or those that run hold more than 256 MiB (or a
// sixteenth of the device memory, if that is less), the host waits, without the interpreter lock.
// Where none of them ends for 5 seconds, they may be waiting for what this thread is about to
// issue: it goes on, and twice as many may run until the backlog is short again. Ctrl-C ends the
// wait.
void await_backlog();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_BACKLOG_H_
