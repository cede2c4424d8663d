// Arithmetic on lists of tensors.
#include "python/csrc/aten/foreach.h"

#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_clamp_max_ops.h>
#include <ATen/ops/_foreach_clamp_min_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_max_ops.h>
#include <ATen/ops/_foreach_maximum_ops.h>
#include <ATen/ops/_foreach_minimum_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_norm_ops.h>
#include <ATen/ops/_foreach_pow_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_in_place<
      ops::_foreach_add__List, ops::_foreach_add__Scalar, ops::_foreach_add__ScalarList,
      ops::_foreach_add__Tensor, ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList,
      ops::_foreach_addcdiv__Tensor, ops::_foreach_addcmul__Scalar,
      ops::_foreach_addcmul__ScalarList, ops::_foreach_addcmul__Tensor,
      ops::_foreach_clamp_max__List, ops::_foreach_clamp_max__Scalar,
      ops::_foreach_clamp_max__ScalarList, ops::_foreach_clamp_min__List,
      ops::_foreach_clamp_min__Scalar, ops::_foreach_clamp_min__ScalarList, ops::_foreach_div__List,
      ops::_foreach_div__Scalar, ops::_foreach_div__ScalarList, ops::_foreach_div__Tensor,
      ops::_foreach_lerp__List, ops::_foreach_lerp__Scalar, ops::_foreach_lerp__ScalarList,
      ops::_foreach_maximum__List, ops::_foreach_maximum__Scalar, ops::_foreach_maximum__ScalarList,
      ops::_foreach_minimum__List, ops::_foreach_minimum__Scalar, ops::_foreach_minimum__ScalarList,
      ops::_foreach_mul__List, ops::_foreach_mul__Scalar, ops::_foreach_mul__ScalarList,
      ops::_foreach_mul__Tensor, ops::_foreach_pow__List, ops::_foreach_pow__Scalar,
      ops::_foreach_pow__ScalarList, ops::_foreach_sub__List, ops::_foreach_sub__Scalar,
      ops::_foreach_sub__ScalarList>(m);
  register_all_on_cpu<
      ops::_foreach_add_List, ops::_foreach_add_Scalar, ops::_foreach_add_ScalarList,
      ops::_foreach_add_Tensor, ops::_foreach_addcdiv_Scalar, ops::_foreach_addcdiv_ScalarList,
      ops::_foreach_addcdiv_Tensor, ops::_foreach_addcmul_Scalar, ops::_foreach_addcmul_ScalarList,
      ops::_foreach_addcmul_Tensor, ops::_foreach_clamp_max_List, ops::_foreach_clamp_max_Scalar,
      ops::_foreach_clamp_max_ScalarList, ops::_foreach_clamp_min_List,
      ops::_foreach_clamp_min_Scalar, ops::_foreach_clamp_min_ScalarList, ops::_foreach_div_List,
      ops::_foreach_div_Scalar, ops::_foreach_div_ScalarList, ops::_foreach_div_Tensor,
      ops::_foreach_lerp_List, ops::_foreach_lerp_Scalar, ops::_foreach_lerp_ScalarList,
      ops::_foreach_max, ops::_foreach_maximum_List, ops::_foreach_maximum_Scalar,
      ops::_foreach_maximum_ScalarList, ops::_foreach_minimum_List, ops::_foreach_minimum_Scalar,
      ops::_foreach_minimum_ScalarList, ops::_foreach_mul_List, ops::_foreach_mul_Scalar,
      ops::_foreach_mul_ScalarList, ops::_foreach_mul_Tensor, ops::_foreach_norm_Scalar,
      ops::_foreach_pow_List, ops::_foreach_pow_Scalar, ops::_foreach_pow_ScalarAndTensor,
      ops::_foreach_pow_ScalarList, ops::_foreach_sub_List, ops::_foreach_sub_Scalar,
      ops::_foreach_sub_ScalarList>(m);
}

}  // namespace torch_openreg
