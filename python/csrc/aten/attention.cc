// Scaled dot product attention by the CPU's fused kernel, wherever the CPU would use it.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/ScopeExit.h>

#include <array>
#include <optional>
#include <tuple>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {
namespace {

namespace ops = at::_ops;
using c10::DispatchKey;
using c10::DispatchKeySet;
using OptionalTensor = std::optional<at::Tensor>;

const DispatchKeySet kCpuKeys(DispatchKey::CPU);

// What the CPU would do with these tensors. Its flash kernel goes by the name of CUDA's memory
// efficient one here: torch calls a kernel of that name on any device, and DTensor and context
// parallelism know it, which is not true of the one that is meant to be overridden. Programs may
// ask for the fused kernel by either name.
int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const OptionalTensor& attn_mask, double dropout_p, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  if (attn_mask.has_value() && attn_mask->requires_grad()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);  // the kernel has no gradient for the mask
  }
  at::Context& context = at::globalContext();
  const bool flash_enabled = context.userEnabledFlashSDP();
  const auto restore = c10::make_scope_exit([&] { context.setSDPUseFlash(flash_enabled); });
  context.setSDPUseFlash(flash_enabled || context.userEnabledMemEfficientSDP());
  const int64_t choice =
      detail::OnCpu<ops::_fused_sdp_choice, ops::_fused_sdp_choice::schema>::call(
          query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  return choice == static_cast<int64_t>(sdp::SDPBackend::flash_attention)
             ? static_cast<int64_t>(sdp::SDPBackend::efficient_attention)
             : choice;
}

void check_dropout(double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0.0,
                              "the fused attention of openreg has no dropout, got dropout_p = ",
                              dropout_p, ": use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
}

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Tensors are [batch, heads, length, features]; the logarithm of the sums is [batch, heads,
// length].
Four attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const OptionalTensor& attn_bias, bool compute_log_sumexp, double dropout_p,
               bool is_causal, std::optional<double> scale) {
  check_dropout(dropout_p);
  using Op = ops::_scaled_dot_product_flash_attention_for_cpu;
  auto [output, log_sumexp] = detail::OnCpu<Op, Op::schema>::call(query, key, value, dropout_p,
                                                                  is_causal, attn_bias, scale);
  if (!compute_log_sumexp) {
    log_sumexp = log_sumexp.slice(/*dim=*/2, 0, 0);
  }
  // What dropout would be drawn from.
  const at::Tensor seed = at::empty({}, query.options().dtype(at::kLong));
  return {output, log_sumexp, seed, at::empty_like(seed)};
}

Four attention_backward(const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key,
                        const at::Tensor& value, const at::Tensor& attn_bias, const at::Tensor& out,
                        const at::Tensor& log_sumexp, const at::Tensor& /*philox_seed*/,
                        const at::Tensor& /*philox_offset*/, double dropout_p,
                        std::array<bool, 4> grad_input_mask, bool is_causal,
                        std::optional<double> scale) {
  check_dropout(dropout_p);
  TORCH_CHECK_NOT_IMPLEMENTED(!attn_bias.defined() || !grad_input_mask[3],
                              "the fused attention of openreg has no gradient for attn_mask: use "
                              "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  if (!grad_out.defined()) {
    return {};
  }
  using Op = ops::_scaled_dot_product_flash_attention_for_cpu_backward;
  auto [grad_q, grad_k, grad_v] = detail::OnCpu<Op, Op::schema>::call(
      grad_out, query, key, value, out, log_sumexp, dropout_p, is_causal,
      attn_bias.defined() ? OptionalTensor(attn_bias) : std::nullopt, scale);
  return {grad_q, grad_k, grad_v, at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", fused_sdp_choice);
  m.impl("_scaled_dot_product_efficient_attention", attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", attention_backward);
}

}  // namespace torch_openreg

namespace at::native {

// scaled_dot_product_attention asks the stub, not the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_openreg::fused_sdp_choice)

}  // namespace at::native
