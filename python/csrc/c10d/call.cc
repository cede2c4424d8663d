#include "python/csrc/c10d/call.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

namespace torch_openreg {
namespace {

// Contiguous, and the bytes are the values (no conjugate, negative or zero tensor).
bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kLazy(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return tensor.is_contiguous() && !tensor.key_set().has_any(kLazy);
}

at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().memory_format(std::nullopt));
  copy.copy_(tensor, /*non_blocking=*/true);
  return copy;
}

// Sorted by stride, each dimension must step over all that the smaller ones reach. Refuses some
// exotic views that do not overlap; refusing is allowed, writing twice is not.
bool overlaps_itself(const at::Tensor& tensor) {
  switch (at::has_internal_overlap(tensor)) {
    case at::MemOverlap::No:
      return false;
    case at::MemOverlap::Yes:
      return true;
    default:
      break;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) {
      return false;
    }
    if (tensor.size(d) > 1) {
      dims.emplace_back(tensor.stride(d), tensor.size(d));
    }
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) {
      return true;
    }
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

std::string Call::prefix() const {
  return c10::str("OCCL ", name, " on ", group.to_string(), ": ");
}

void Call::check(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::PrivateUse1 ||
      tensor.layout() != c10::kStrided || tensor.device().index() != device_ ||
      tensor.scalar_type() != dtype_) [[unlikely]] {
    check_slow(tensor);
  }
}

void Call::check_slow(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), prefix(), "expected a tensor, got an undefined one");
  TORCH_CHECK_VALUE(tensor.device().type() == c10::DeviceType::PrivateUse1, prefix(), "expected ",
                    c10::DeviceTypeName(c10::DeviceType::PrivateUse1, true),
                    " tensors, got one on ", tensor.device());
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, prefix(),
                              "expected dense (strided) tensors, got layout ", tensor.layout());
  if (device_ < 0) {
    device_ = tensor.device().index();
  }
  TORCH_CHECK_VALUE(tensor.device().index() == device_, prefix(),
                    "expected all tensors on one device (index ", static_cast<int>(device_),
                    "), got one on ", tensor.device());
  if (dtype_ == at::ScalarType::Undefined) {
    dtype_ = tensor.scalar_type();
  }
  TORCH_CHECK_TYPE(tensor.scalar_type() == dtype_, prefix(), "expected all tensors of dtype ",
                   dtype_, ", got one of ", tensor.scalar_type());
}

void Call::check_written(const at::Tensor& tensor) const {
  TORCH_CHECK_VALUE(!overlaps_itself(tensor), prefix(), "the output of sizes ", tensor.sizes(),
                    " and strides ", tensor.strides(),
                    " overlaps itself: several of its elements share memory");
  TORCH_CHECK_VALUE(!tensor._is_zerotensor(), prefix(), "the output is an immutable zero tensor");
}

const void* Call::input(const at::Tensor& tensor) {
  check(tensor);
  if (is_plain(tensor)) [[likely]] {
    kept.push_back(tensor);
    return tensor.const_data_ptr();
  }
  kept.push_back(plain_copy(tensor));
  return kept.back().const_data_ptr();
}

void* Call::output(const at::Tensor& tensor) {
  check(tensor);
  results.push_back(tensor);
  if (is_plain(tensor)) [[likely]] {
    return tensor.mutable_data_ptr();
  }
  check_written(tensor);
  const at::Tensor staged = at::empty(tensor.sizes(), tensor.options().memory_format(std::nullopt));
  kept.push_back(staged);
  copy_backs.emplace_back(tensor, staged);
  return staged.mutable_data_ptr();
}

void* Call::in_place(const at::Tensor& tensor) {
  check(tensor);
  results.push_back(tensor);
  if (is_plain(tensor)) [[likely]] {
    return tensor.mutable_data_ptr();
  }
  check_written(tensor);
  const at::Tensor staged = plain_copy(tensor);
  kept.push_back(staged);
  copy_backs.emplace_back(tensor, staged);
  return staged.mutable_data_ptr();
}

void Call::check_single(c10::ArrayRef<at::Tensor> tensors, const char* what) const {
  TORCH_CHECK_VALUE(tensors.size() == 1, prefix(), "expected a list of one ", what, ", got ",
                    tensors.size());
}

void Call::check_size(std::size_t found, std::size_t expected, const char* what) const {
  TORCH_CHECK_VALUE(found == expected, prefix(), "expected ", expected, " ", what, ", got ", found);
}

void Call::check_rank(std::int64_t rank, const char* what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < group.size, prefix(), what, " ", rank,
                    " is not a rank of the group (0 to ", group.size - 1, ")");
}

}  // namespace torch_openreg
