// What torch's profiler sees of an operation: the record_param_comms event.
#ifndef PYTHON_CSRC_C10D_PROFILE_H_
#define PYTHON_CSRC_C10D_PROFILE_H_

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <optional>

#include "python/csrc/c10d/call.h"

namespace torch_openreg {

// True if somebody listens to record functions on this thread. A few nanoseconds.
inline bool is_profiling() { return at::hasGlobalCallbacks() || at::hasThreadLocalCallbacks(); }

// For its life, the event "record_param_comms" is open with the operation's sizes, dtype, splits
// and group, as ProcessGroupNCCL's is. Does nothing, and costs nothing, if nobody listens.
class ProfileScope {
 public:
  ProfileScope(const Call& call, std::uint64_t sequence) {
    if (is_profiling()) [[unlikely]] {
      open(call, sequence);
    }
  }

 private:
  void open(const Call& call, std::uint64_t sequence);

  std::optional<c10::DebugInfoGuard> info_;
  std::optional<at::RecordFunction> record_;
};

// "occl:all_reduce" for "all_reduce", static storage; nullptr if nobody listens.
const char* profiling_title(const char* operation);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_PROFILE_H_
