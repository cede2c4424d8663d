// Joining, taking apart and looking up: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/searchsorted_ops.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_ops.h>

#include "python/csrc/aten/on_cpu_indices.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<ops::_index_put_impl_, ops::arange_start_out, ops::bincount,
                      ops::bucketize_Tensor, ops::cat, ops::flip, ops::gather, ops::index_Tensor,
                      ops::index_add, ops::index_add_, ops::index_fill__int_Scalar, ops::index_put_,
                      ops::index_select, ops::masked_select, ops::nonzero,
                      ops::repeat_interleave_Tensor, ops::roll, ops::scatter__src,
                      ops::scatter__value, ops::scatter_add, ops::scatter_add_, ops::scatter_src,
                      ops::searchsorted_Tensor, ops::tril, ops::triu>(m);
}

}  // namespace torch_openreg
