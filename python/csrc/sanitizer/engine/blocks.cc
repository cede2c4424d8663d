#include "python/csrc/sanitizer/engine/blocks.h"

#include <iterator>
#include <utility>

namespace torch_openreg::sanitizer {
namespace {

// The entry of a map by first address that contains `at`, or end().
template <typename Map, typename Bytes>
auto containing(Map& map, Address at, Bytes bytes) {
  auto entry = map.upper_bound(at);
  if (entry == map.begin()) {
    return map.end();
  }
  --entry;
  return at - entry->first < bytes(entry->second) ? entry : map.end();
}

}  // namespace

void Blocks::allocate(Address low, std::size_t bytes, Timeline timeline) {
  // Whatever was known of these addresses is over.
  auto dead = dead_.upper_bound(low);
  if (dead != dead_.begin() && std::prev(dead)->first + std::prev(dead)->second.block.bytes > low) {
    --dead;
  }
  while (dead != dead_.end() && dead->first < low + bytes) {
    dead = dead_.erase(dead);
  }
  Block& block = live_[low];
  block = Block{low, bytes, timeline, ++serial_, {}};
}

bool Blocks::take(Address low, Block* taken) {
  const auto found = live_.find(low);
  if (found == live_.end()) {
    return false;
  }
  *taken = std::move(found->second);
  live_.erase(found);
  return true;
}

void Blocks::freed(Block block, Place place, std::vector<AccessPtr> accesses) {
  const std::uint64_t serial = ++serial_;
  if (!accesses.empty()) {
    unordered_.push_back(Freed{block, place, serial, std::move(accesses)});
    if (unordered_.size() > kMaxUnordered) {
      unordered_.pop_front();
    }
  }
  const Address low = block.low;
  dead_.insert_or_assign(low, Freed{std::move(block), place, serial, {}});
  dead_order_.push_back(low);
  if (dead_order_.size() > kMaxFreed) {
    dead_.erase(dead_order_.front());
    dead_order_.pop_front();
  }
}

Block* Blocks::find(Address at) {
  const auto found = containing(live_, at, [](const Block& block) { return block.bytes; });
  return found == live_.end() ? nullptr : &found->second;
}

const Freed* Blocks::find_freed(Address at) const {
  const auto found = containing(dead_, at, [](const Freed& freed) { return freed.block.bytes; });
  return found == dead_.end() ? nullptr : &found->second;
}

}  // namespace torch_openreg::sanitizer
