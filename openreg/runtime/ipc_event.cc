#include "openreg/runtime/ipc_event.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace openreg {
namespace {
constexpr int64_t kPeerCheckMs = 20;
}

SharedEvent SharedEvent::Own(std::shared_ptr<SharedEventCell> cell) {
  SharedEvent event;
  event.cell_ = std::move(cell);
  return event;
}

SharedEvent SharedEvent::Import(std::shared_ptr<SharedEventCell> cell,
                                std::shared_ptr<PeerLiveness> peer) {
  SharedEvent event = Own(std::move(cell));
  event.peer_ = std::move(peer);
  return event;
}

uint64_t SharedEvent::BeginRecord() const {
  return cell_->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
}

void SharedEvent::CompleteRecord(uint64_t number) const {
  // Records on two streams may complete out of order; the count only goes up.
  uint64_t done = cell_->completed.load(std::memory_order_relaxed);
  while (done < number &&
         !cell_->completed.compare_exchange_weak(done, number, std::memory_order_acq_rel)) {
  }
  FutexWake(LowWord(cell_->completed), INT_MAX, FutexScope::kShared);
}

Status SharedEvent::Wait(uint64_t number, Deadline deadline, bool (*stop)(void*),
                         void* stop_arg) const {
  while (true) {
    uint64_t done = cell_->completed.load(std::memory_order_acquire);
    if (done >= number) return Status();
    if (deadline.Passed() || stop(stop_arg)) {
      return Status(orErrorTimeout, "the event of a peer process has not completed in time");
    }
    // Looked at after the counter: a peer that completed and then died has completed.
    if (peer_ != nullptr && !peer_->Alive()) {
      if (Complete(number)) return Status();
      return Status(orErrorPeerDead,
                    "the process that owns the imported event ended before completing it");
    }
    FutexWait(LowWord(cell_->completed), static_cast<uint32_t>(done), deadline.Slice(kPeerCheckMs),
              FutexScope::kShared);
  }
}

}  // namespace openreg
