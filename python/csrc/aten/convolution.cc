// Convolutions: the CPU chooses its algorithm, as it does for its own tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convolution_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {
namespace {

namespace ops = at::_ops;
using c10::SymIntArrayRef;
using OptionalTensor = std::optional<at::Tensor>;

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const OptionalTensor& bias, SymIntArrayRef stride,
                                    SymIntArrayRef padding, SymIntArrayRef dilation,
                                    bool transposed, SymIntArrayRef output_padding,
                                    c10::SymInt groups) {
  return ops::convolution::call(input, weight, bias, stride, padding, dilation, transposed,
                                output_padding, std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed,
    SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> output_mask) {
  // Of the bias the backward wants to know only that there is one, and how large.
  at::OptionalSymIntArrayRef bias_sizes;
  c10::SymInt channels = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
  if (output_mask[2]) {
    bias_sizes = SymIntArrayRef(&channels, 1);
  }
  return ops::convolution_backward::call(grad_output, input, weight, bias_sizes, stride, padding,
                                         dilation, transposed, output_padding, std::move(groups),
                                         output_mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_all_on_cpu<ops::_convolution, ops::convolution, ops::convolution_backward>(m);
  m.impl("convolution_overrideable", convolution_overrideable);
  m.impl("convolution_backward_overrideable", convolution_backward_overrideable);
}

}  // namespace torch_openreg
