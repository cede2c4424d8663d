// Vector clocks over the timelines of a process (its streams).
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_VECTOR_CLOCK_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_VECTOR_CLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch_openreg::sanitizer {

// A stream. Numbered from 0 in the order in which the sanitizer meets them.
using Timeline = std::uint32_t;

// One point on one timeline: its `number`-th operation, from 1. What FastTrack calls an epoch.
struct Epoch {
  Timeline timeline = 0;
  std::uint64_t number = 0;
};

// How much of each timeline has happened before some point (Fidge 1988, Mattern 1989). Timelines
// that were never mentioned are at 0.
class VectorClock {
 public:
  std::uint64_t at(Timeline timeline) const {
    return timeline < numbers_.size() ? numbers_[timeline] : 0;
  }

  void advance_to(Timeline timeline, std::uint64_t number) {
    if (timeline >= numbers_.size()) {
      numbers_.resize(timeline + std::size_t{1}, 0);
    }
    numbers_[timeline] = std::max(numbers_[timeline], number);
  }

  void join(const VectorClock& other) {
    if (other.numbers_.size() > numbers_.size()) {
      numbers_.resize(other.numbers_.size(), 0);
    }
    for (std::size_t i = 0; i < other.numbers_.size(); ++i) {
      numbers_[i] = std::max(numbers_[i], other.numbers_[i]);
    }
  }

  // The point has happened before whatever this clock belongs to.
  bool covers(const Epoch& epoch) const { return at(epoch.timeline) >= epoch.number; }
  // So has everything that `other` knows of.
  bool covers(const VectorClock& other) const {
    for (Timeline timeline = 0; timeline < other.numbers_.size(); ++timeline) {
      if (at(timeline) < other.numbers_[timeline]) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::uint64_t> numbers_;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_VECTOR_CLOCK_H_
