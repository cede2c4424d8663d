// The streams on which a communicator's sends and receives run.
#ifndef PYTHON_CSRC_C10D_MESSAGE_STREAMS_H_
#define PYTHON_CSRC_C10D_MESSAGE_STREAMS_H_

#include <c10/util/ArrayRef.h>

#include <vector>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// What point-to-point operations are ordered by: first in, first out for each of these.
struct PointToPointKey {
  int peer;
  int tag;
  bool receives;
  bool operator==(const PointToPointKey&) const = default;
};

// Operations wait for none but earlier ones with a key of theirs: what a peer answers in another
// order must not queue behind each other. More sends, or more receives, than 64 in flight at once
// share streams. Not thread-safe.
class MessageStreams {
 public:
  MessageStreams(c10::DeviceIndex device, bool high_priority)
      : device_(device), high_priority_(high_priority) {}
  MessageStreams(const MessageStreams&) = delete;
  MessageStreams& operator=(const MessageStreams&) = delete;
  ~MessageStreams();

  // Where the next operation with these keys, a message or a batch of them, is to be queued.
  OpenregStream next(c10::ArrayRef<PointToPointKey> keys);

 private:
  struct Slot {
    OpenregStream stream;
    std::vector<PointToPointKey> keys;  // of what was queued since it was last empty

    bool shares_any(c10::ArrayRef<PointToPointKey> others) const;
    // What has these keys has to wait for all that is queued here.
    bool precedes(c10::ArrayRef<PointToPointKey> others) const;
  };
  Slot& free_slot(bool receives);

  const c10::DeviceIndex device_;
  const bool high_priority_;
  std::vector<Slot> slots_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_MESSAGE_STREAMS_H_
