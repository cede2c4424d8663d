// How a rank that has not joined a communicator ends it for the others, or leaves it.
#ifndef OCCL_CORE_ABORT_INIT_H_
#define OCCL_CORE_ABORT_INIT_H_

#include "occl/base/status.h"
#include "occl/bootstrap/store_meeting.h"
#include "occl/core/comm.h"

namespace occl {

// Tells those who come later through the store, and those who have come through their control
// segment, so that what waits there ends at once. Waits for no rank but the keeper's thread.
Status AbortInit(const CommSettings& settings, StoreMeeting* meeting, const Status& why);
// The same for a rank that only leaves: what needs it ends, and the rest goes on. has_joined: it is
// about to destroy its communicator, and says so to those who come when all who joined have gone.
Status LeaveInit(const CommSettings& settings, StoreMeeting* meeting, bool has_joined);

}  // namespace occl

#endif  // OCCL_CORE_ABORT_INIT_H_
