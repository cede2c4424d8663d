// Pointwise operators that are called often: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zero_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<
      ops::abs, ops::add_Tensor, ops::add__Tensor, ops::add_out, ops::addcdiv, ops::addcdiv_,
      ops::addcdiv_out, ops::addcmul, ops::addcmul_, ops::addcmul_out, ops::bitwise_and_Tensor,
      ops::bitwise_not, ops::bitwise_or_Tensor, ops::ceil, ops::clamp, ops::clamp_, ops::clamp_max,
      ops::clamp_min, ops::cos, ops::div_Tensor, ops::div_Tensor_mode, ops::div__Tensor,
      ops::div_out, ops::eq_Scalar, ops::eq_Tensor, ops::erf, ops::exp, ops::exp_,
      ops::fill__Scalar, ops::fill__Tensor, ops::floor, ops::ge_Scalar, ops::ge_Tensor,
      ops::gt_Scalar, ops::gt_Tensor, ops::isnan, ops::le_Scalar, ops::le_Tensor, ops::lerp_Scalar,
      ops::lerp_Tensor, ops::lerp__Scalar, ops::lerp__Tensor, ops::log, ops::log_, ops::logical_and,
      ops::logical_not, ops::logical_or, ops::lt_Scalar, ops::lt_Tensor, ops::masked_fill_Scalar,
      ops::masked_fill_Tensor, ops::masked_fill__Scalar, ops::masked_fill__Tensor, ops::maximum,
      ops::minimum, ops::mul_Tensor, ops::mul__Tensor, ops::mul_out, ops::ne_Scalar, ops::ne_Tensor,
      ops::neg, ops::neg_, ops::pow_Tensor_Scalar, ops::pow_Tensor_Tensor, ops::pow__Scalar,
      ops::reciprocal, ops::reciprocal_, ops::remainder_Scalar, ops::remainder_Tensor, ops::round,
      ops::rsqrt, ops::rsqrt_, ops::rsub_Scalar, ops::rsub_Tensor, ops::sign, ops::sin, ops::sqrt,
      ops::sqrt_, ops::sub_Tensor, ops::sub__Tensor, ops::sub_out, ops::tan, ops::tanh, ops::tanh_,
      ops::where_self, ops::zero_>(m);
}

}  // namespace torch_openreg
