// The bytes that one tensor argument touches.
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_REGION_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_REGION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch_openreg::sanitizer {

using Address = std::uintptr_t;

// A strided set of bytes: runs of `run_bytes` contiguous bytes, repeated along `dims`. Dense if
// there are no dims. Immutable.
class Region {
 public:
  struct Dim {
    std::int64_t count;   // at least 2
    std::int64_t stride;  // bytes, positive

    bool operator==(const Dim&) const = default;
  };

  Region() = default;
  // [low, high).
  Region(Address low, Address high) : low_(low), high_(high), run_bytes_(high - low) {}
  // Elements of `item_bytes` at `data` + sum of index * stride (elements). All sizes positive,
  // strides not negative. Dimensions that repeat the same bytes (stride 0) or continue a run are
  // folded, so that a tensor whose bytes are contiguous in any order of dimensions is dense.
  static Region strided(Address data, const std::int64_t* sizes, const std::int64_t* strides,
                        std::size_t dims, std::size_t item_bytes);

  Address low() const { return low_; }
  Address high() const { return high_; }  // one past the last byte
  bool empty() const { return high_ == low_; }
  bool dense() const { return dims_.empty(); }
  bool operator==(const Region&) const = default;

  // They share a byte: exact, also for strided sets of up to kMaxRuns runs in their common range.
  // Beyond that they are taken for disjoint if neither is dense, so that no report is a guess.
  bool overlaps(const Region& other) const;

 private:
  static constexpr std::size_t kMaxRuns = std::size_t{1} << 20;

  // The starts of the runs that reach into [low, high), in order; false if there are too many.
  bool runs_within(Address low, Address high, std::vector<Address>* starts) const;

  Address low_ = 0;
  Address high_ = 0;
  std::size_t run_bytes_ = 0;
  std::vector<Dim> dims_;  // largest stride first
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_REGION_H_
