// _foreach_zero_: what an optimizer does with all gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_zero_ops.h>

#include <cstring>

#include "python/csrc/aten/copy_bytes.h"
#include "python/csrc/aten/foreach.h"

namespace torch_openreg {
namespace {

constexpr const char* kZeroName = "aten::_foreach_zero_";

// All are tensors of one openreg device without holes.
bool are_dense(at::TensorList tensors) {
  if (tensors.empty() || !tensors[0].is_privateuseone()) {
    return false;
  }
  const c10::Device device = tensors[0].device();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != device || !has_plain_bytes(tensor)) {
      return false;
    }
  }
  return true;
}

void foreach_zero_(at::TensorList self) {
  if (!sanitizer::enabled() && are_dense(self)) {
    if (TryStreamHold hold(current_stream(self[0].device().index()), kZeroName); hold) {
      for (const at::Tensor& tensor : self) {
        if (tensor.nbytes() > 0) {
          std::memset(kernel_data(tensor), 0, tensor.nbytes());
        }
      }
      return;
    }
  }
  detail::InPlace<at::_ops::_foreach_zero_>::call(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_foreach_zero_", foreach_zero_); }

}  // namespace torch_openreg
