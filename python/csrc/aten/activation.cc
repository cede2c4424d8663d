// Activations and losses, with their derivatives: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<
      ops::_log_softmax, ops::_log_softmax_backward_data, ops::_softmax,
      ops::_softmax_backward_data, ops::binary_cross_entropy, ops::binary_cross_entropy_backward,
      ops::elu, ops::elu_backward, ops::gelu, ops::gelu_backward, ops::hardswish,
      ops::hardswish_backward, ops::hardtanh, ops::hardtanh_backward, ops::leaky_relu,
      ops::leaky_relu_backward, ops::mse_loss, ops::mse_loss_backward, ops::nll_loss2d_backward,
      ops::nll_loss2d_forward, ops::nll_loss_backward, ops::nll_loss_forward, ops::relu, ops::relu_,
      ops::sigmoid, ops::sigmoid_, ops::sigmoid_backward, ops::silu, ops::silu_, ops::silu_backward,
      ops::smooth_l1_loss, ops::smooth_l1_loss_backward, ops::softplus, ops::softplus_backward,
      ops::tanh_backward, ops::threshold_backward>(m);
}

}  // namespace torch_openreg
