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
                                std::shared_ptr<PeerLiveness> peer, uint32_t recorder) {
  SharedEvent event = Own(std::move(cell));
  event.peer_ = std::move(peer);
  event.recorder_ = recorder;
  return event;
}

namespace {

// The slot's number only goes up: records on two streams may complete out of order.
void RaiseTo(SharedEventCell* cell, uint64_t number, uint64_t flag) {
  std::atomic<uint64_t>& completed = cell->Of(number).completed;
  uint64_t done = completed.load(std::memory_order_relaxed);
  while ((done & ~SharedEventCell::kFailed) < number &&
         !completed.compare_exchange_weak(done, number | flag, std::memory_order_acq_rel)) {
  }
  cell->wakes.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(&cell->wakes, INT_MAX, FutexScope::kShared);
}

}  // namespace

uint64_t SharedEvent::BeginRecord() const {
  uint64_t number = cell_->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
  uint64_t recorder = uint64_t{recorder_} << SharedEventCell::kRecorderShift;
  cell_->Of(number).begun.store(recorder | number, std::memory_order_release);
  return number;
}

void SharedEvent::CompleteRecord(uint64_t number) const { RaiseTo(cell_.get(), number, 0); }

void SharedEvent::Abandon(SharedEventCell* cell, uint32_t recorder) {
  for (SharedEventCell::Slot& slot : cell->slots) {
    uint64_t begun = slot.begun.load(std::memory_order_acquire);
    uint64_t number = begun & ((uint64_t{1} << SharedEventCell::kRecorderShift) - 1);
    // The number is a peer's word: it may not lead to another slot.
    if (begun >> SharedEventCell::kRecorderShift == recorder && &cell->Of(number) == &slot) {
      RaiseTo(cell, number, SharedEventCell::kFailed);
    }
  }
}

Status SharedEvent::State(uint64_t number) const {
  uint64_t done = cell_->Of(number).completed.load(std::memory_order_acquire);
  if ((done & ~SharedEventCell::kFailed) < number) return Status::NotReady();
  if (done != (number | SharedEventCell::kFailed)) return Status();
  return Status(orErrorPeerDead,
                "a process that had recorded the shared event ended before the record completed");
}

Status SharedEvent::Wait(uint64_t number, Deadline deadline, bool (*stop)(void*),
                         void* stop_arg) const {
  while (true) {
    uint32_t wakes = cell_->wakes.load(std::memory_order_acquire);
    // Looked at before the counter: a peer that completed and then died has completed.
    bool alive = peer_ == nullptr || peer_->Alive();
    Status state = State(number);
    if (state.code() != orErrorNotReady) return state;
    if (!alive) {
      return Status(orErrorPeerDead,
                    "the process that owns the imported event ended before the event completed");
    }
    if (deadline.Passed() || stop(stop_arg)) {
      return Status(orErrorTimeout, "the event of a peer process has not completed in time");
    }
    FutexWait(&cell_->wakes, wakes, deadline.Slice(kPeerCheckMs), FutexScope::kShared);
  }
}

}  // namespace openreg
