// Which parts of a stretch (of an arena, of the address space) are free. First fit by offset, so
// that what is in use stays dense; parts that were never used come last.
#ifndef OPENREG_RUNTIME_FREE_RANGES_H_
#define OPENREG_RUNTIME_FREE_RANGES_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace openreg {

// Hands out multiples of a unit. Every method locks.
class FreeRanges {
 public:
  // Nothing is free until Reset.
  FreeRanges() = default;
  FreeRanges(size_t size, size_t unit) { Reset(size, unit); }

  // [0, size), rounded down to whole units, is free. `unit` is a power of two.
  void Reset(size_t size, size_t unit);
  // Whole units for `size` bytes. False if no free range is long enough.
  bool Take(size_t size, size_t* offset);
  // Gives back what Take gave for the same size; free neighbours join.
  void Give(size_t offset, size_t size);
  size_t Largest() const;
  // What is not free, as (offset, bytes); neighbours are one.
  std::vector<std::pair<size_t, size_t>> Taken() const;

 private:
  size_t WholeUnits(size_t size) const { return (size + unit_ - 1) & ~(unit_ - 1); }

  size_t size_ = 0, unit_ = 1;  // constant after Reset
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> bytes, whole units; guarded by mutex_
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_FREE_RANGES_H_
