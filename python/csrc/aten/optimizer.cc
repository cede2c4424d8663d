// Fused optimizers, and the scaling of gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <ATen/ops/_amp_update_scale_ops.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<ops::_amp_foreach_non_finite_check_and_unscale_, ops::_amp_update_scale_,
                      ops::_fused_adagrad_, ops::_fused_adam_, ops::_fused_adam__tensor_lr,
                      ops::_fused_adamw_, ops::_fused_adamw__tensor_lr, ops::_fused_sgd_,
                      ops::_fused_sgd__tensor_lr>(m);
}

}  // namespace torch_openreg
