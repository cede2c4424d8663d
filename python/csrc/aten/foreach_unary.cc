// Functions of one variable on lists of tensors.
#include <ATen/ops/_foreach_abs_ops.h>
#include <ATen/ops/_foreach_acos_ops.h>
#include <ATen/ops/_foreach_asin_ops.h>
#include <ATen/ops/_foreach_atan_ops.h>
#include <ATen/ops/_foreach_ceil_ops.h>
#include <ATen/ops/_foreach_cos_ops.h>
#include <ATen/ops/_foreach_cosh_ops.h>
#include <ATen/ops/_foreach_erf_ops.h>
#include <ATen/ops/_foreach_erfc_ops.h>
#include <ATen/ops/_foreach_exp_ops.h>
#include <ATen/ops/_foreach_expm1_ops.h>
#include <ATen/ops/_foreach_floor_ops.h>
#include <ATen/ops/_foreach_frac_ops.h>
#include <ATen/ops/_foreach_lgamma_ops.h>
#include <ATen/ops/_foreach_log10_ops.h>
#include <ATen/ops/_foreach_log1p_ops.h>
#include <ATen/ops/_foreach_log2_ops.h>
#include <ATen/ops/_foreach_log_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_reciprocal_ops.h>
#include <ATen/ops/_foreach_round_ops.h>
#include <ATen/ops/_foreach_rsqrt_ops.h>
#include <ATen/ops/_foreach_sigmoid_ops.h>
#include <ATen/ops/_foreach_sign_ops.h>
#include <ATen/ops/_foreach_sin_ops.h>
#include <ATen/ops/_foreach_sinh_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_tan_ops.h>
#include <ATen/ops/_foreach_tanh_ops.h>
#include <ATen/ops/_foreach_trunc_ops.h>

#include "python/csrc/aten/foreach.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_in_place<
      ops::_foreach_abs_, ops::_foreach_acos_, ops::_foreach_asin_, ops::_foreach_atan_,
      ops::_foreach_ceil_, ops::_foreach_cos_, ops::_foreach_cosh_, ops::_foreach_erf_,
      ops::_foreach_erfc_, ops::_foreach_exp_, ops::_foreach_expm1_, ops::_foreach_floor_,
      ops::_foreach_frac_, ops::_foreach_lgamma_, ops::_foreach_log_, ops::_foreach_log10_,
      ops::_foreach_log1p_, ops::_foreach_log2_, ops::_foreach_neg_, ops::_foreach_reciprocal_,
      ops::_foreach_round_, ops::_foreach_rsqrt_, ops::_foreach_sigmoid_, ops::_foreach_sign_,
      ops::_foreach_sin_, ops::_foreach_sinh_, ops::_foreach_sqrt_, ops::_foreach_tan_,
      ops::_foreach_tanh_, ops::_foreach_trunc_>(m);
  register_all_on_cpu<ops::_foreach_abs, ops::_foreach_acos, ops::_foreach_asin, ops::_foreach_atan,
                      ops::_foreach_ceil, ops::_foreach_cos, ops::_foreach_cosh, ops::_foreach_erf,
                      ops::_foreach_erfc, ops::_foreach_exp, ops::_foreach_expm1,
                      ops::_foreach_floor, ops::_foreach_frac, ops::_foreach_lgamma,
                      ops::_foreach_log, ops::_foreach_log10, ops::_foreach_log1p,
                      ops::_foreach_log2, ops::_foreach_neg, ops::_foreach_reciprocal,
                      ops::_foreach_round, ops::_foreach_rsqrt, ops::_foreach_sigmoid,
                      ops::_foreach_sign, ops::_foreach_sin, ops::_foreach_sinh, ops::_foreach_sqrt,
                      ops::_foreach_tan, ops::_foreach_tanh, ops::_foreach_trunc>(m);
}

}  // namespace torch_openreg
