// The part of an event that other processes see: counters in a page of shared memory. The owner and
// those who opened the event record it, as CUDA allows.
#ifndef OPENREG_RUNTIME_IPC_EVENT_H_
#define OPENREG_RUNTIME_IPC_EVENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "openreg/runtime/futex.h"
#include "openreg/runtime/status.h"

namespace openreg {

// In shared memory. Records are numbered from 1 by all processes together; number n uses slot
// n % kSlots. A record on one stream never overtakes an earlier one there, so a slot's number means
// the records it stands for unless an event is recorded kSlots times on several streams while the
// first of them is pending: then waiting for that one may end with the last.
struct SharedEventCell {
  static constexpr size_t kSlots = 7;
  static constexpr uint64_t kFailed = uint64_t{1} << 63;  // flag of `completed`
  static constexpr int kRecorderShift = 40;

  struct Slot {
    std::atomic<uint64_t> completed;  // the largest number that has, and kFailed
    std::atomic<uint64_t> begun;      // the last number, and who recorded it << kRecorderShift
  };

  std::atomic<uint64_t> recorded;  // the last number given out
  std::atomic<uint32_t> wakes;     // goes up at each completion; what waiters sleep on
  Slot slots[kSlots];

  Slot& Of(uint64_t number) { return slots[number % kSlots]; }
};
static_assert(sizeof(SharedEventCell) == 128);

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
  // `recorder` is what the owner calls this process.
  static SharedEvent Import(std::shared_ptr<SharedEventCell> cell,
                            std::shared_ptr<PeerLiveness> peer, uint32_t recorder);

  // A new record begins; returns its number.
  uint64_t BeginRecord() const;
  // The record with this number is complete.
  void CompleteRecord(uint64_t number) const;
  // Owner: `recorder` is gone; what it had begun and not completed fails.
  static void Abandon(SharedEventCell* cell, uint32_t recorder);

  uint64_t recorded() const { return cell_->recorded.load(std::memory_order_acquire); }
  // orErrorNotReady, or as Wait.
  Status State(uint64_t number) const;
  // Errors: orErrorTimeout, orErrorPeerDead (of the owner, or of who recorded). `stop` ends the
  // wait early (as a timeout).
  Status Wait(uint64_t number, Deadline deadline, bool (*stop)(void*), void* stop_arg) const;

 private:
  std::shared_ptr<SharedEventCell> cell_;
  std::shared_ptr<PeerLiveness> peer_;
  uint32_t recorder_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_IPC_EVENT_H_
