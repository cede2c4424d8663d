// Dropout: its mask is drawn from the device's generator. (The CPU's kernel takes no generator; it
// would draw from the host's.)
#include <ATen/Functions.h>
#include <torch/library.h>

#include <tuple>

#include "python/csrc/aten/cpu_call.h"

namespace torch_openreg {
namespace {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  constexpr const char* kOp = "aten::native_dropout";
  DeviceFinder finder(kOp);
  finder.see(input);
  CpuCall call(kOp, finder.device());
  const at::Tensor x = call.at(call.add(input, /*written=*/false));
  if (input.numel() == 0 || !train.value_or(true)) {
    return {call.wrap(x.clone()), call.wrap(at::ones_like(x, x.options().dtype(at::kBool)))};
  }
  if (p == 1) {
    return {call.wrap(at::zeros_like(x)),
            call.wrap(at::zeros_like(x, x.options().dtype(at::kBool)))};
  }
  at::Tensor mask = at::empty_like(x, x.options().dtype(at::kBool));
  mask.bernoulli_(1 - p, call.generator(std::nullopt));
  // In this order, as torch's dropout on the CPU rounds.
  at::Tensor output = x.mul(mask.to(x.scalar_type()).div_(1 - p));
  return {call.wrap(std::move(output)), call.wrap(std::move(mask))};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_dropout", native_dropout); }

}  // namespace torch_openreg
