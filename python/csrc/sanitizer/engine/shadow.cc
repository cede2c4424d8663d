#include "python/csrc/sanitizer/engine/shadow.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace torch_openreg::sanitizer {
namespace {

void add_once(const AccessPtr& access, std::vector<AccessPtr>* to) {
  if (std::find(to->begin(), to->end(), access) == to->end()) {
    to->push_back(access);
  }
}

bool conflict(const Access& earlier, const Access& later, const VectorClock& clock) {
  return (earlier.writes || later.writes) && !clock.covers(earlier.operation->epoch) &&
         earlier.region.overlaps(later.region);
}

// No access after `later` can conflict with `earlier` and not with `later`, in bytes of both.
bool supersedes(const Access& later, const Access& earlier, const VectorClock& clock) {
  return (later.writes || !earlier.writes) && clock.covers(earlier.operation->epoch) &&
         (later.region.dense() || later.region == earlier.region);
}

}  // namespace

void Shadow::split(Address at) {
  const auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) {
    return;
  }
  const auto cell = std::prev(next);
  if (cell->first < at && at < cell->second.high) {
    Cell upper{cell->second.high, cell->second.accesses};
    cell->second.high = at;
    cells_.emplace_hint(next, at, std::move(upper));
  }
}

void Shadow::add_to(Cell& cell, const AccessPtr& access, const VectorClock& clock,
                    std::vector<AccessPtr>* found) const {
  std::vector<AccessPtr>& accesses = cell.accesses;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (accesses[i] == access) {
      continue;
    }
    if (conflict(*accesses[i], *access, clock)) {
      add_once(accesses[i], found);
    }
    if (!supersedes(*access, *accesses[i], clock)) {
      if (kept != i) {
        accesses[kept] = std::move(accesses[i]);
      }
      ++kept;
    }
  }
  accesses.resize(kept);
  if (accesses.size() >= kMaxAccesses) {
    accesses.erase(accesses.begin());
  }
  accesses.push_back(access);
}

std::vector<AccessPtr> Shadow::add(const AccessPtr& access, const VectorClock& clock) {
  const Address low = access->region.low();
  const Address high = access->region.high();
  std::vector<AccessPtr> found;
  // The usual case: the whole of a range that is there already, or of a new one.
  const auto exact = cells_.find(low);
  if (exact != cells_.end() && exact->second.high == high) {
    add_to(exact->second, access, clock, &found);
    return found;
  }
  split(low);
  split(high);
  auto cell = cells_.lower_bound(low);
  bool alone = true;  // nothing but the new access is left in the whole range
  Address at = low;
  const auto begin = cell;
  while (at < high) {
    if (cell == cells_.end() || cell->first > at) {
      const Address end = cell == cells_.end() ? high : std::min(high, cell->first);
      cells_.emplace_hint(cell, at, Cell{end, {access}});
      at = end;
      continue;
    }
    add_to(cell->second, access, clock, &found);
    alone = alone && cell->second.accesses.size() == 1;
    at = cell->second.high;
    ++cell;
  }
  if (alone && begin != cell) {
    cells_.erase(cells_.lower_bound(low), cell);
    cells_.emplace_hint(cell, low, Cell{high, {access}});
  }
  return found;
}

Shadow::Cells::const_iterator Shadow::first_reaching(Address low) const {
  auto cell = cells_.upper_bound(low);
  if (cell != cells_.begin() && std::prev(cell)->second.high > low) {
    --cell;
  }
  return cell;
}

std::vector<AccessPtr> Shadow::conflicts(const Access& access, const VectorClock& clock) const {
  std::vector<AccessPtr> found;
  for (auto cell = first_reaching(access.region.low());
       cell != cells_.end() && cell->first < access.region.high(); ++cell) {
    for (const AccessPtr& earlier : cell->second.accesses) {
      if (conflict(*earlier, access, clock)) {
        add_once(earlier, &found);
      }
    }
  }
  return found;
}

std::vector<AccessPtr> Shadow::take(Address low, Address high) {
  split(low);
  split(high);
  std::vector<AccessPtr> taken;
  const auto begin = cells_.lower_bound(low);
  auto end = begin;
  for (; end != cells_.end() && end->first < high; ++end) {
    taken.insert(taken.end(), end->second.accesses.begin(), end->second.accesses.end());
  }
  cells_.erase(begin, end);
  std::sort(taken.begin(), taken.end());
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  return taken;
}

void Shadow::forget(const Operation& operation) {
  for (auto cell = cells_.begin(); cell != cells_.end();) {
    std::erase_if(cell->second.accesses, [&operation](const AccessPtr& access) {
      return access->operation.get() == &operation;
    });
    cell = cell->second.accesses.empty() ? cells_.erase(cell) : std::next(cell);
  }
}

bool Shadow::known(Address low, Address high) const {
  const auto cell = first_reaching(low);
  return cell != cells_.end() && cell->first < high;
}

}  // namespace torch_openreg::sanitizer
