// The part of an event that other processes see: two counters in a page of shared memory.
#ifndef OPENREG_RUNTIME_IPC_EVENT_H_
#define OPENREG_RUNTIME_IPC_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "openreg/runtime/futex.h"
#include "openreg/runtime/status.h"

namespace openreg {

// In shared memory. Written by the owner's process only. completed <= recorded; both count records.
struct SharedEventCell {
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> completed;
};

// Whether the owner of an imported event still lives.
class PeerLiveness {
 public:
  virtual ~PeerLiveness() = default;
  virtual bool Alive() const = 0;
};

// Copyable: copies share the mapping, so a queued wait outlives the event.
class SharedEvent {
 public:
  bool valid() const { return cell_ != nullptr; }
  bool imported() const { return peer_ != nullptr; }

  const std::shared_ptr<SharedEventCell>& cell() const { return cell_; }

  static SharedEvent Own(std::shared_ptr<SharedEventCell> cell);
  static SharedEvent Import(std::shared_ptr<SharedEventCell> cell,
                            std::shared_ptr<PeerLiveness> peer);

  // Owner: a new record begins; returns its number.
  uint64_t BeginRecord() const;
  // Owner: the record with this number, and all before, are complete.
  void CompleteRecord(uint64_t number) const;

  uint64_t recorded() const { return cell_->recorded.load(std::memory_order_acquire); }
  bool Complete(uint64_t number) const {
    return cell_->completed.load(std::memory_order_acquire) >= number;
  }
  // Errors: orErrorTimeout, orErrorPeerDead. `stop` ends the wait early (as a timeout).
  Status Wait(uint64_t number, Deadline deadline, bool (*stop)(void*), void* stop_arg) const;

 private:
  std::shared_ptr<SharedEventCell> cell_;
  std::shared_ptr<PeerLiveness> peer_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_EVENT_H_
