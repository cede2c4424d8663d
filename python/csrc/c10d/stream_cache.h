// Streams that process groups own, used again by later groups.
#ifndef PYTHON_CSRC_C10D_STREAM_CACHE_H_
#define PYTHON_CSRC_C10D_STREAM_CACHE_H_

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// A stream that no other group uses: a pool shared with other users would let one group's
// operation wait behind another's, which may need it to go first. Streams are never destroyed
// (c10::Stream has no life time), so making and destroying groups again and again keeps as many as
// were in use at once. Thread-safe.
OpenregStream take_stream(c10::DeviceIndex device, bool high_priority);
// What is still queued there goes on; the next owner's work comes after it.
void give_stream_back(const OpenregStream& stream, bool high_priority);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_STREAM_CACHE_H_
