// Who drives operations: the calling thread for a short while if the stream is empty, then the
// stream's worker until they are done.
#ifndef OCCL_CORE_EXECUTOR_H_
#define OCCL_CORE_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "occl/base/ref.h"
#include "occl/base/status.h"
#include "occl/core/op.h"

namespace occl {

// An operation whose arguments are good, not yet part of anything.
struct Call {
  Ref<CommOp> op;
  orStream_t stream = nullptr;
  bool async = false;  // leave all to the stream's worker
};

// Issues one operation. On an error (stream unknown) nothing has been issued.
Status Launch(Call call);

// Issues operations together: one state machine per stream, so that no order among them matters.
Status LaunchGroup(std::vector<Call> calls);

}  // namespace occl

#endif  // OCCL_CORE_EXECUTOR_H_
