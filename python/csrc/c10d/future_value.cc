#include "python/csrc/c10d/future_value.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace torch_openreg {

c10::IValue future_value(c10d::OpType type, const std::vector<at::Tensor>& outputs) {
  const bool equal_parts = std::all_of(outputs.begin(), outputs.end(), [&](const at::Tensor& one) {
    return one.sizes() == outputs[0].sizes() && one.dtype() == outputs[0].dtype();
  });
  if (type != c10d::OpType::ALLGATHER || outputs.empty() || !equal_parts) {
    return c10::IValue(outputs);
  }
  const at::NoGradGuard no_grad;
  at::DimVector shape(outputs[0].sizes());
  shape.insert(shape.begin(), static_cast<std::int64_t>(outputs.size()));
  const at::Tensor gathered = at::empty(shape, outputs[0].options());
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    gathered.select(0, static_cast<std::int64_t>(rank)).copy_(outputs[rank], true);
  }
  return c10::IValue(std::vector<at::Tensor>{gathered});
}

}  // namespace torch_openreg
