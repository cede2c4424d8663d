// Shadow memory: for every byte, the accesses that later ones have to be ordered after.
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_SHADOW_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_SHADOW_H_

#include <cstddef>
#include <map>
#include <vector>

#include "python/csrc/sanitizer/engine/access.h"

namespace torch_openreg::sanitizer {

// A map from disjoint ranges of addresses to accesses, split where accesses begin and end. As in
// FastTrack (Flanagan and Freund, PLDI 2009), what a later access makes superfluous is dropped: an
// access that is ordered before a write of the same bytes can be in no race that the write is not
// in, and the same holds for a read and a later read. So the usual range holds one write and a read
// for each stream, whatever the length of the program. Not thread-safe.
class Shadow {
 public:
  // Accesses of one range that are kept at most; beyond that the oldest are forgotten.
  static constexpr std::size_t kMaxAccesses = 256;

  // Adds an access, made at `clock`, and returns those before it that it conflicts with: they share
  // a byte, one of them writes, and `clock` does not cover them. Each once.
  std::vector<AccessPtr> add(const AccessPtr& access, const VectorClock& clock);
  // What `access` would conflict with, without adding it.
  std::vector<AccessPtr> conflicts(const Access& access, const VectorClock& clock) const;
  // Forgets [low, high) and returns what was known of it, each access once.
  std::vector<AccessPtr> take(Address low, Address high);

  // Forgets what an operation was to do that did not run.
  void forget(const Operation& operation);

  bool known(Address low, Address high) const;
  std::size_t cells() const { return cells_.size(); }

 private:
  struct Cell {
    Address high = 0;
    std::vector<AccessPtr> accesses;
  };
  using Cells = std::map<Address, Cell>;

  void split(Address at);
  void add_to(Cell& cell, const AccessPtr& access, const VectorClock& clock,
              std::vector<AccessPtr>* found) const;
  Cells::const_iterator first_reaching(Address low) const;

  Cells cells_;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_SHADOW_H_
