// Reductions that are called often: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<ops::all, ops::all_dim, ops::amax, ops::amin, ops::any, ops::any_dim,
                      ops::argmax, ops::argmin, ops::cumsum, ops::equal, ops::linalg_vector_norm,
                      ops::max, ops::max_dim, ops::mean, ops::mean_dim, ops::mean_out, ops::min,
                      ops::min_dim, ops::prod, ops::sort, ops::sort_stable, ops::std_correction,
                      ops::sum, ops::sum_IntList_out, ops::sum_dim_IntList, ops::topk,
                      ops::var_correction, ops::var_mean_correction>(m);
}

}  // namespace torch_openreg
