// Which operators torch.autocast("openreg") casts: CUDA's lists, which torch shares with backends.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor& /*self*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/,
                                       std::int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast: the gradient of a sigmoid in 16 bits overflows. Use "
              "binary_cross_entropy_with_logits or BCEWithLogitsLoss, or leave autocast around "
              "the loss with autocast(device_type='openreg', enabled=False).");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define OR_KERNEL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(OR_KERNEL_LOWER_PRECISION)
#undef OR_KERNEL_LOWER_PRECISION

#define OR_KERNEL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(OR_KERNEL_FP32)
#undef OR_KERNEL_FP32

#define OR_KERNEL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(OR_KERNEL_FP32_SET_OPT_DTYPE)
#undef OR_KERNEL_FP32_SET_OPT_DTYPE

  using at::IntArrayRef;
  using at::Scalar;
  using at::ScalarType;
  using at::Tensor;
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define OR_KERNEL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(OR_KERNEL_PROMOTE)
#undef OR_KERNEL_PROMOTE
  KERNEL_PRIVATEUSEONE(stack, promote)
  KERNEL_PRIVATEUSEONE(cat, promote)

  m.impl("aten::binary_cross_entropy", &refuse_binary_cross_entropy);
}
