// Products of matrices: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<ops::addmm, ops::addmm_, ops::addmm_out, ops::addmv, ops::baddbmm,
                      ops::baddbmm_, ops::bmm, ops::bmm_out, ops::dot, ops::mm, ops::mm_out,
                      ops::mv>(m);
}

}  // namespace torch_openreg
