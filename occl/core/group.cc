#include "occl/core/group.h"

#include <utility>
#include <vector>

namespace occl {
namespace {

// Apart from the rest, which is made at its first use by a thread and asks each time whether it is.
thread_local int depth = 0;
struct ThreadGroup {
  std::vector<Call> calls;
  Status error;
};
thread_local ThreadGroup group;

}  // namespace

void StartGroup() { ++depth; }

bool InGroup() { return depth > 0; }

void AddToGroup(Call call) { group.calls.push_back(std::move(call)); }

void SpoilGroup(const Status& status) {
  if (group.error.ok()) group.error = status;
}

Status EndGroup() {
  if (depth == 0) {
    return Error(occlInvalidUsage, "occlGroupEnd without occlGroupStart on this thread");
  }
  if (--depth > 0) return Status();
  std::vector<Call> calls = std::exchange(group.calls, {});
  const Status error = std::exchange(group.error, Status());
  if (!error.ok()) {
    // The requests that were handed out end with the error too.
    for (const Call& call : calls) call.op->Cancel(error);
    return error;
  }
  if (calls.empty()) return Status();
  return LaunchGroup(std::move(calls));
}

}  // namespace occl
