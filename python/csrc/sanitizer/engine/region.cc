#include "python/csrc/sanitizer/engine/region.h"

#include <algorithm>

namespace torch_openreg::sanitizer {

Region Region::strided(Address data, const std::int64_t* sizes, const std::int64_t* strides,
                       std::size_t dims, std::size_t item_bytes) {
  Region region(data, data + item_bytes);
  for (std::size_t i = 0; i < dims; ++i) {
    if (sizes[i] > 1 && strides[i] != 0) {
      const auto stride = strides[i] * static_cast<std::int64_t>(item_bytes);
      region.dims_.push_back({sizes[i], stride});
      region.high_ += static_cast<Address>((sizes[i] - 1) * stride);
    }
  }
  std::sort(region.dims_.begin(), region.dims_.end(),
            [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  // The innermost dimensions that touch, or overlap, become part of the run.
  while (!region.dims_.empty() &&
         region.dims_.back().stride <= static_cast<std::int64_t>(region.run_bytes_)) {
    const Dim inner = region.dims_.back();
    region.dims_.pop_back();
    region.run_bytes_ += static_cast<std::size_t>((inner.count - 1) * inner.stride);
  }
  return region;
}

bool Region::runs_within(Address low, Address high, std::vector<Address>* starts) const {
  starts->assign(1, low_);
  // What the dimensions from i on reach beyond the start of a run, with the run itself.
  std::size_t reach = high_ - low_;
  for (const Dim& dim : dims_) {
    reach -= static_cast<std::size_t>((dim.count - 1) * dim.stride);
    std::vector<Address> next;
    for (const Address start : *starts) {
      for (std::int64_t i = 0; i < dim.count; ++i) {
        const Address at = start + static_cast<Address>(i * dim.stride);
        if (at >= high) {
          break;
        }
        if (at + reach > low) {
          next.push_back(at);
        }
      }
      if (next.size() > kMaxRuns) {
        return false;
      }
    }
    *starts = std::move(next);
  }
  std::sort(starts->begin(), starts->end());
  return true;
}

bool Region::overlaps(const Region& other) const {
  const Address low = std::max(low_, other.low_);
  const Address high = std::min(high_, other.high_);
  if (low >= high) {
    return false;
  }
  if (dense() && other.dense()) {
    return true;
  }
  std::vector<Address> mine;
  std::vector<Address> theirs;
  if (!runs_within(low, high, &mine) || !other.runs_within(low, high, &theirs)) {
    return dense() || other.dense();
  }
  auto a = mine.begin();
  auto b = theirs.begin();
  while (a != mine.end() && b != theirs.end()) {
    if (*a + run_bytes_ <= *b) {
      ++a;
    } else if (*b + other.run_bytes_ <= *a) {
      ++b;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace torch_openreg::sanitizer
