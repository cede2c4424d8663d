// Scaled dot product attention by the CPU's fused kernel, wherever the CPU would use it.
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/empty_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {
namespace {

namespace ops = at::_ops;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::SymInt;
using OptionalTensor = std::optional<at::Tensor>;

const DispatchKeySet kCpuKeys(DispatchKey::CPU);

// What the CPU would do with these tensors; its flash kernel is called "overrideable" here.
int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& attn_mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  if (attn_mask.has_value() && attn_mask->requires_grad()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);  // the kernel has no gradient for the mask
  }
  const int64_t choice =
      detail::OnCpu<ops::_fused_sdp_choice, ops::_fused_sdp_choice::schema>::call(
          query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  return choice == static_cast<int64_t>(sdp::SDPBackend::flash_attention)
             ? static_cast<int64_t>(sdp::SDPBackend::overrideable)
             : choice;
}

// The kernel takes (batch, heads, length, features).
at::Tensor with_batch(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, SymInt, SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;

void check_dropout(double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0.0,
                              "the fused attention of openreg has no dropout, got dropout_p = ",
                              dropout_p, ": use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
}

Forward attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const OptionalTensor& attn_bias, double dropout_p, bool is_causal,
                  bool /*return_debug_mask*/, std::optional<double> scale) {
  check_dropout(dropout_p);
  using Op = ops::_scaled_dot_product_flash_attention_for_cpu;
  auto [output, logsumexp] =
      detail::OnCpu<Op, Op::schema>::call(with_batch(query), with_batch(key), with_batch(value),
                                          dropout_p, is_causal, attn_bias, scale);
  if (query.dim() == 3) {
    output = output.squeeze(0);
    logsumexp = logsumexp.squeeze(0);
  }
  const at::Tensor philox = at::empty({}, query.options().dtype(at::kLong));
  return {output,           logsumexp, at::Tensor(),   at::Tensor(), query.sym_size(-2),
          key.sym_size(-2), philox,    philox.clone(), at::Tensor()};
}

using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Backward attention_backward(const at::Tensor& grad_out, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask,
                            const at::Tensor& out, const at::Tensor& logsumexp,
                            const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/,
                            SymInt /*max_q*/, SymInt /*max_k*/, double dropout_p, bool is_causal,
                            const at::Tensor& /*philox_seed*/, const at::Tensor& /*philox_offset*/,
                            std::optional<double> scale) {
  check_dropout(dropout_p);
  TORCH_CHECK_NOT_IMPLEMENTED(!grad_input_mask[3],
                              "the fused attention of openreg has no gradient for attn_mask: use "
                              "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  using Op = ops::_scaled_dot_product_flash_attention_for_cpu_backward;
  auto [grad_q, grad_k, grad_v] = detail::OnCpu<Op, Op::schema>::call(
      with_batch(grad_out), with_batch(query), with_batch(key), with_batch(value), with_batch(out),
      logsumexp.dim() == 2 ? logsumexp.unsqueeze(0) : logsumexp, dropout_p, is_causal,
      attn_bias.defined() ? OptionalTensor(attn_bias) : std::nullopt, scale);
  if (query.dim() == 3) {
    return {grad_q.squeeze(0), grad_k.squeeze(0), grad_v.squeeze(0), at::Tensor()};
  }
  return {grad_q, grad_k, grad_v, at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", fused_sdp_choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
}

}  // namespace torch_openreg

namespace at::native {

// scaled_dot_product_attention asks the stub, not the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_openreg::fused_sdp_choice)

}  // namespace at::native
