// Events: a record is a position of a stream (stream_clock.h), so recording costs no allocation and
// usually no queue entry, and what was captured stays valid when the event is recorded again or
// destroyed.
#ifndef OPENREG_RUNTIME_EVENT_H_
#define OPENREG_RUNTIME_EVENT_H_

#include <cstdint>

#include "openreg/api/openreg.h"
#include "openreg/runtime/futex.h"
#include "openreg/runtime/ipc_event.h"
#include "openreg/runtime/status.h"
#include "openreg/runtime/stream.h"

namespace openreg {

// Event objects live for ever and are reused (handle_table.h).
class Event {
 public:
  // Before the handle is given out.
  void Start(int device, unsigned flags, SharedEvent shared);
  // The handle is gone; marks that are still queued find a newer version and do nothing.
  void End();

  int device() const { return device_; }
  unsigned flags() const { return flags_; }
  bool imported() const { return shared_.imported(); }

  Status Record(Stream* stream);
  // Queues the wait for the present record on `stream`.
  Status QueueWait(Stream* stream);
  Status Query();
  Status Synchronize(Deadline deadline);
  static Status ElapsedTime(float* ms, Event* start, Event* end);

  // The part that other processes see; of events with orEventInterprocess.
  const SharedEvent& shared() const { return shared_; }

 private:
  struct Captured {
    Stream* stream = nullptr;  // NULL: never recorded
    uint64_t stream_id = 0;    // the object may be another stream later
    uint64_t sequence = 0;
    uint64_t version = 0;
    int64_t time_ns = 0;         // 0: not yet, or timing is disabled
    uint64_t shared_number = 0;  // of an event that is shared
  };

  Captured Snapshot();
  // True if the event's last record is one of another process.
  bool PeerRecorded(const Captured& record) const {
    return shared_.valid() && shared_.recorded() != record.shared_number;
  }
  static orError_t RunMark(Work& work);

  int device_ = 0;
  unsigned flags_ = 0;
  SharedEvent shared_;

  FutexLock lock_;  // guards record_
  Captured record_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_EVENT_H_
