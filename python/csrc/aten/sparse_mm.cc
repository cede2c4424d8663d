// torch.sparse.mm with a reduction.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_mm_reduce_impl_ops.h>
#include <torch/library.h>

#include <string_view>
#include <tuple>
#include <utility>

#include "python/csrc/aten/composite.h"
#include "python/csrc/aten/cpu_call.h"

namespace torch_openreg {
namespace {

constexpr const char* kSparseMmName = "aten::_sparse_mm_reduce_impl";

// The CPU's kernel notes where the maxima came from, which its backward reads, only where one of
// its arguments requires a gradient. Aliases never do, so one is told to.
std::tuple<at::Tensor, at::Tensor> mm_reduce(const at::Tensor& self, const at::Tensor& other,
                                             std::string_view reduce) {
  DeviceFinder finder(kSparseMmName);
  finder.see(self);
  finder.see(other);
  const bool for_backward =
      at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad());
  CpuCall call(kSparseMmName, finder.device());
  Composites tensors(call);
  const at::Tensor sparse = tensors.add(self, /*written=*/false);
  const at::Tensor dense = tensors.add(other, /*written=*/false);
  if (for_backward) {
    sparse.unsafeGetTensorImpl()->set_requires_grad(true);
  }
  auto [product, sources] = at::_ops::_sparse_mm_reduce_impl::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), sparse, dense, reduce);
  call.finish();
  tensors.finish();
  return {tensors.wrap(std::move(product)), tensors.wrap(std::move(sources))};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { m.impl("_sparse_mm_reduce_impl", mm_reduce); }

}  // namespace torch_openreg
