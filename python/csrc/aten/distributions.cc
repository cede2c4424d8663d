// Random numbers: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/poisson_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/uniform_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<ops::bernoulli, ops::bernoulli__Tensor, ops::bernoulli__float,
                      ops::bernoulli_out, ops::cauchy_, ops::exponential_, ops::geometric_,
                      ops::log_normal_, ops::multinomial, ops::normal_, ops::normal_Tensor_Tensor,
                      ops::normal_Tensor_float, ops::normal_float_Tensor, ops::poisson,
                      ops::random_, ops::random__from, ops::random__to, ops::randperm_generator_out,
                      ops::uniform_>(m);
}

}  // namespace torch_openreg
