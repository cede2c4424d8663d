#include "python/csrc/c10d/message_streams.h"

#include <algorithm>

#include "python/csrc/c10d/event_pool.h"
#include "python/csrc/c10d/stream_cache.h"

namespace torch_openreg {
namespace {

// Of each kind: none is behind one of the other kind, which may be what its peer waits for.
constexpr std::size_t kMaxStreams = 64;

bool is_among(c10::ArrayRef<PointToPointKey> keys, const PointToPointKey& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Else all are sends.
bool any_receives(c10::ArrayRef<PointToPointKey> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [](const PointToPointKey& key) { return key.receives; });
}

}  // namespace

bool MessageStreams::Slot::shares_any(c10::ArrayRef<PointToPointKey> others) const {
  return std::any_of(others.begin(), others.end(),
                     [&](const PointToPointKey& key) { return is_among(keys, key); });
}

bool MessageStreams::Slot::precedes(c10::ArrayRef<PointToPointKey> others) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const PointToPointKey& key) { return is_among(others, key); });
}

MessageStreams::~MessageStreams() {
  for (const Slot& slot : slots_) {
    give_stream_back(slot.stream, high_priority_);
  }
}

MessageStreams::Slot& MessageStreams::free_slot(bool receives) {
  Slot* least = nullptr;
  std::size_t alike = 0;
  for (Slot& slot : slots_) {
    if (!is_busy(slot.stream)) {
      slot.keys.clear();
      return slot;
    }
    if (any_receives(slot.keys) == receives) {
      ++alike;
      least = least == nullptr || slot.keys.size() < least->keys.size() ? &slot : least;
    }
  }
  if (alike < kMaxStreams) {
    slots_.push_back({take_stream(device_, high_priority_), {}});
    return slots_.back();
  }
  return *least;
}

OpenregStream MessageStreams::next(c10::ArrayRef<PointToPointKey> keys) {
  Slot* chosen = nullptr;
  std::vector<OpenregStream> earlier;  // where what it continues is queued, if not in `chosen`
  for (Slot& slot : slots_) {
    if (!slot.shares_any(keys) || !is_busy(slot.stream)) {
      continue;
    }
    // Nowhere else: a receive behind a batch and a send that follows the batch would not begin
    // where its peer has the same.
    if (chosen == nullptr && slot.precedes(keys)) {
      chosen = &slot;
    } else {
      earlier.push_back(slot.stream);
    }
  }
  if (chosen == nullptr) {
    chosen = &free_slot(any_receives(keys));
  }
  for (const OpenregStream& stream : earlier) {
    if (stream.handle != chosen->stream.handle) {
      order_after(chosen->stream, stream);
    }
  }
  for (const PointToPointKey& key : keys) {
    if (!is_among(chosen->keys, key)) {
      chosen->keys.push_back(key);
    }
  }
  return chosen->stream;
}

}  // namespace torch_openreg
