#include "occl/core/group.h"

#include <utility>
#include <vector>

namespace occl {
namespace {

struct ThreadGroup {
  int depth = 0;
  std::vector<Call> calls;
  Status error;
};
thread_local ThreadGroup group;

}  // namespace

void StartGroup() { ++group.depth; }

bool InGroup() { return group.depth > 0; }

void AddToGroup(Call call) { group.calls.push_back(std::move(call)); }

void SpoilGroup(const Status& status) {
  if (group.error.ok()) group.error = status;
}

Status EndGroup() {
  if (group.depth == 0) {
    return Error(occlInvalidUsage, "occlGroupEnd without occlGroupStart on this thread");
  }
  if (--group.depth > 0) return Status();
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
