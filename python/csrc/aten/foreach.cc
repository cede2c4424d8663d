// Lists of tensors (foreach operators, fused optimizers, the scaling of gradients): the CPU's
// kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <ATen/ops/_amp_update_scale_ops.h>
#include <ATen/ops/_foreach_abs_ops.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_maximum_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_norm_ops.h>
#include <ATen/ops/_foreach_pow_ops.h>
#include <ATen/ops/_foreach_reciprocal_ops.h>
#include <ATen/ops/_foreach_sign_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>
#include <ATen/ops/_foreach_zero_ops.h>
#include <ATen/ops/_fused_adagrad_ops.h>
#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>

#include <string>
#include <utility>

#include "python/csrc/aten/on_cpu.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {

namespace {

namespace ops = at::_ops;

// In place: the first list is written to, which the sanitizer has to be told.
template <typename Op, typename Schema>
struct InPlace;
template <typename Op, typename Result, typename... Rest>
struct InPlace<Op, Result(at::TensorList, Rest...)> {
  static Result call(at::TensorList self, Rest... rest) {
    const sanitizer::WrittenFirst written(self.size());
    return detail::OnCpu<Op, typename Op::schema>::call(self, std::forward<Rest>(rest)...);
  }
};

template <typename... Ops>
void register_all_in_place(torch::Library& library) {
  const auto name = [](const char* op, const char* overload) {
    return *overload == '\0' ? std::string(op) : std::string(op) + "." + overload;
  };
  (library.impl(name(Ops::name, Ops::overload_name).c_str(),
                TORCH_FN((&InPlace<Ops, typename Ops::schema>::call))),
   ...);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_all_in_place<
      ops::_foreach_add__List, ops::_foreach_add__Scalar, ops::_foreach_add__ScalarList,
      ops::_foreach_add__Tensor, ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList,
      ops::_foreach_addcdiv__Tensor, ops::_foreach_addcmul__Scalar,
      ops::_foreach_addcmul__ScalarList, ops::_foreach_addcmul__Tensor, ops::_foreach_div__List,
      ops::_foreach_div__Scalar, ops::_foreach_div__ScalarList, ops::_foreach_div__Tensor,
      ops::_foreach_lerp__List, ops::_foreach_lerp__Scalar, ops::_foreach_maximum__List,
      ops::_foreach_mul__List, ops::_foreach_mul__Scalar, ops::_foreach_mul__ScalarList,
      ops::_foreach_mul__Tensor, ops::_foreach_neg_, ops::_foreach_reciprocal_, ops::_foreach_sign_,
      ops::_foreach_sqrt_, ops::_foreach_sub__List, ops::_foreach_sub__Scalar, ops::_foreach_zero_>(
      m);
  register_all_on_cpu<
      ops::_amp_foreach_non_finite_check_and_unscale_, ops::_amp_update_scale_, ops::_foreach_abs,
      ops::_foreach_add_List, ops::_foreach_add_Scalar, ops::_foreach_div_List,
      ops::_foreach_div_Scalar, ops::_foreach_div_ScalarList, ops::_foreach_maximum_List,
      ops::_foreach_mul_List, ops::_foreach_mul_Scalar, ops::_foreach_mul_Tensor, ops::_foreach_neg,
      ops::_foreach_norm_Scalar, ops::_foreach_pow_ScalarAndTensor, ops::_foreach_sqrt,
      ops::_foreach_sub_List, ops::_foreach_sub_Scalar, ops::_fused_adagrad_, ops::_fused_adam_,
      ops::_fused_adam__tensor_lr, ops::_fused_adamw_, ops::_fused_adamw__tensor_lr,
      ops::_fused_sgd_, ops::_fused_sgd__tensor_lr>(m);
}

}  // namespace torch_openreg
