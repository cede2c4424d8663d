#include "python/csrc/sanitizer/engine/engine.h"

#include <algorithm>
#include <utility>

namespace torch_openreg::sanitizer {

using Lock = std::lock_guard<std::mutex>;

namespace {

// Of each timeline only the last: who is ordered after that is ordered after the others.
void keep_last(std::vector<AccessPtr>* accesses) {
  std::sort(accesses->begin(), accesses->end(), [](const AccessPtr& a, const AccessPtr& b) {
    const Epoch& x = a->operation->epoch;
    const Epoch& y = b->operation->epoch;
    return std::pair(x.timeline, y.number) < std::pair(y.timeline, x.number);
  });
  const auto same = [](const AccessPtr& a, const AccessPtr& b) {
    return a->operation->epoch.timeline == b->operation->epoch.timeline;
  };
  accesses->erase(std::unique(accesses->begin(), accesses->end(), same), accesses->end());
}

void add_races(std::vector<AccessPtr> earlier, const AccessPtr& later,
               std::vector<Finding>* findings) {
  keep_last(&earlier);
  for (AccessPtr& access : earlier) {
    findings->push_back({Finding::Kind::kRace, std::move(access), later});
  }
}

// What is reported counts as ordered from then on, as if the wait that is missing were there: what
// else is wrong only for want of that wait is not told again at every later use.
void take_as_ordered(const std::vector<Finding>& findings, VectorClock* clock) {
  for (const Finding& finding : findings) {
    if (finding.first != nullptr) {
      const Epoch& epoch = finding.first->operation->epoch;
      clock->advance_to(epoch.timeline, epoch.number);
    }
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------- order

Engine::Stream& Engine::stream_of(Handle stream) {
  const auto [entry, is_new] =
      timelines_.try_emplace(stream, static_cast<Timeline>(streams_.size()));
  if (is_new) {
    streams_.push_back({stream, {}, 0});
  }
  return streams_[entry->second];
}

// The stream as it is for whatever is issued to it now: after all that the host has waited for.
Engine::Stream& Engine::now(Handle stream) {
  Stream& found = stream_of(stream);
  if (found.host_version != host_version_) {
    found.clock.join(host_);
    found.host_version = host_version_;
  }
  return found;
}

void Engine::join_host(const VectorClock& clock) {
  host_.join(clock);
  ++host_version_;
}

Timeline Engine::timeline(Handle stream) {
  const Lock lock(mutex_);
  stream_of(stream);
  return timelines_.at(stream);
}

Engine::Handle Engine::handle_of(Timeline timeline) {
  const Lock lock(mutex_);
  return timeline < streams_.size() ? streams_[timeline].handle : 0;
}

void Engine::record_event(Handle event, Handle stream) {
  const Lock lock(mutex_);
  events_[event] = now(stream).clock;
}

void Engine::forget_event(Handle event) {
  const Lock lock(mutex_);
  events_.erase(event);
}

void Engine::stream_waits_for_event(Handle stream, Handle event) {
  const Lock lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end()) {
    now(stream).clock.join(found->second);
  }
}

void Engine::stream_waits_for_stream(Handle stream, Handle other) {
  const Lock lock(mutex_);
  const VectorClock clock = now(other).clock;
  now(stream).clock.join(clock);
}

void Engine::host_waits_for_event(Handle event) {
  const Lock lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end()) {
    join_host(found->second);
  }
}

void Engine::host_waits_for_stream(Handle stream) {
  const Lock lock(mutex_);
  join_host(stream_of(stream).clock);
}

void Engine::host_waits_for_streams(const std::function<bool(Handle)>& select) {
  const Lock lock(mutex_);
  for (const auto& [handle, timeline] : timelines_) {
    if (select(handle)) {
      join_host(streams_[timeline].clock);
    }
  }
}

Engine::Snapshot Engine::snapshot(Handle stream) {
  const Lock lock(mutex_);
  return std::make_shared<const VectorClock>(now(stream).clock);
}

void Engine::stream_waits_for(Handle stream, const Snapshot& snapshot) {
  const Lock lock(mutex_);
  now(stream).clock.join(*snapshot);
}

void Engine::host_waits_for(const Snapshot& snapshot) {
  const Lock lock(mutex_);
  join_host(*snapshot);
}

// ----------------------------------------------------------------------------------------- work

std::shared_ptr<const Operation> Engine::begin(Operation operation, Handle stream) {
  const Lock lock(mutex_);
  Stream& on = now(stream);
  operation.epoch.timeline = timelines_.at(stream);
  operation.epoch.number = on.clock.at(operation.epoch.timeline) + 1;
  on.clock.advance_to(operation.epoch.timeline, operation.epoch.number);
  return std::make_shared<const Operation>(std::move(operation));
}

std::vector<Finding> Engine::access(Access access) {
  const Lock lock(mutex_);
  std::vector<Finding> findings;
  const auto shared = std::make_shared<const Access>(std::move(access));
  check_memory(shared, &findings);
  VectorClock& clock = streams_[shared->operation->epoch.timeline].clock;
  add_races(shadow_.add(shared, clock), shared, &findings);
  take_as_ordered(findings, &clock);
  return findings;
}

void Engine::withdraw(const Operation& operation) {
  const Lock lock(mutex_);
  shadow_.forget(operation);
}

std::vector<Finding> Engine::host_access(Access access) {
  const Lock lock(mutex_);
  std::vector<Finding> findings;
  const auto shared = std::make_shared<const Access>(std::move(access));
  add_races(shadow_.conflicts(*shared, host_), shared, &findings);
  take_as_ordered(findings, &host_);
  host_version_ += findings.empty() ? 0 : 1;
  return findings;
}

void Engine::check_memory(const AccessPtr& access, std::vector<Finding>* findings) {
  const Address low = access->region.low();
  const Address high = access->region.high();
  const TensorInfo& tensor = access->tensor;
  if (const Block* block = blocks_.find(low)) {
    if (high > block->low + block->bytes) {
      findings->push_back({Finding::Kind::kBounds, nullptr, access});
    }
    if (blocks_.has_unordered()) {
      check_reuse(access, *block, findings);
    }
  } else if (const Freed* freed = blocks_.find_freed(low)) {
    findings->push_back({Finding::Kind::kUseAfterFree, nullptr, access, freed->place,
                         freed->block.low, freed->block.bytes});
    return;
  }
  if (findings->empty() &&
      (low < tensor.storage_low || high > tensor.storage_low + tensor.storage_bytes)) {
    findings->push_back({Finding::Kind::kBounds, nullptr, access});
  }
}

void Engine::check_reuse(const AccessPtr& access, const Block& block,
                         std::vector<Finding>* findings) {
  const Timeline timeline = access->operation->epoch.timeline;
  const VectorClock& clock = streams_[timeline].clock;
  blocks_.for_each_reuse(block, [&](Freed& freed) {
    const bool settled = timeline == freed.block.timeline;
    std::erase_if(freed.accesses, [&](const AccessPtr& earlier) {
      const bool ordered = clock.covers(earlier->operation->epoch);
      if (!ordered) {
        findings->push_back({Finding::Kind::kReuse, earlier, access, freed.place, freed.block.low,
                             freed.block.bytes});
      }
      return !ordered || settled || host_.covers(earlier->operation->epoch);
    });
  });
}

// --------------------------------------------------------------------------------------- memory

void Engine::allocate(Address low, std::size_t bytes, Handle stream) {
  const Lock lock(mutex_);
  stream_of(stream);
  // The allocator has waited for what used these addresses, or a Freed block says otherwise.
  shadow_.take(low, low + bytes);
  blocks_.allocate(low, bytes, timelines_.at(stream));
}

void Engine::free(Address low, Place place) {
  const Lock lock(mutex_);
  Block block;
  if (!blocks_.take(low, &block)) {
    return;  // older than the sanitizer
  }
  std::vector<AccessPtr> accesses = shadow_.take(low, low + block.bytes);
  std::erase_if(accesses, [&](const AccessPtr& access) {
    const Epoch& epoch = access->operation->epoch;
    const auto passed = [&](Timeline by) { return streams_[by].clock.covers(epoch); };
    return host_.covers(epoch) || passed(block.timeline) ||
           std::any_of(block.recorded.begin(), block.recorded.end(), passed);
  });
  keep_last(&accesses);
  blocks_.freed(std::move(block), place, std::move(accesses));
}

void Engine::record_stream(Address at, Handle stream) {
  const Lock lock(mutex_);
  stream_of(stream);
  if (Block* block = blocks_.find(at)) {
    const Timeline timeline = timelines_.at(stream);
    if (std::find(block->recorded.begin(), block->recorded.end(), timeline) ==
        block->recorded.end()) {
      block->recorded.push_back(timeline);
    }
  }
}

void Engine::forget_memory(Address low, std::size_t bytes) {
  const Lock lock(mutex_);
  shadow_.take(low, low + bytes);
}

void Engine::forget() {
  const Lock lock(mutex_);
  shadow_ = Shadow();
  blocks_ = Blocks();
  events_.clear();
}

bool Engine::used_by_streams(Address low, Address high) {
  const Lock lock(mutex_);
  return shadow_.known(low, high);
}

bool Engine::host_covers(const Snapshot& snapshot) {
  const Lock lock(mutex_);
  return host_.covers(*snapshot);
}

}  // namespace torch_openreg::sanitizer
