// Events that are used again: making one costs more than recording it.
#ifndef PYTHON_CSRC_C10D_EVENT_POOL_H_
#define PYTHON_CSRC_C10D_EVENT_POOL_H_

#include "openreg/api/openreg.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Records an event without timing on `stream`. Give it back when nobody will wait for it any more;
// waits that are already queued are not disturbed. Thread-safe.
orEvent_t record_event(const OpenregStream& stream);
void give_event_back(c10::DeviceIndex device, orEvent_t event) noexcept;

// True if work is queued or running there. Unlike a query of the stream it reads, and so clears, no
// error.
bool is_busy(const OpenregStream& stream);

// Makes `waiting` wait for what is queued on `running` now. Nothing to do if that is nothing.
// Throws what asynchronous work left behind on `running`.
void order_after(const OpenregStream& waiting, const OpenregStream& running);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_EVENT_POOL_H_
