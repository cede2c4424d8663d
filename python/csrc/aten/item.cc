// Tensor.item(): one element to the host.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

#include "python/csrc/aten/copy_bytes.h"
#include "python/csrc/aten/on_cpu.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {
namespace {

using LocalScalarDense = at::_ops::_local_scalar_dense;

template <typename T>
at::Scalar read(const void* element) {
  return *static_cast<const T*>(element);
}

// Of the dtypes that losses and counters have; nothing for the others.
std::optional<at::Scalar> read_element(at::ScalarType dtype, const void* element) {
  switch (dtype) {
    case at::kFloat:
      return read<float>(element);
    case at::kDouble:
      return read<double>(element);
    case at::kHalf:
      return read<at::Half>(element);
    case at::kBFloat16:
      return read<at::BFloat16>(element);
    case at::kLong:
      return read<std::int64_t>(element);
    case at::kInt:
      return read<std::int32_t>(element);
    case at::kBool:
      return read<bool>(element);
    default:
      return std::nullopt;
  }
}

// Without an alias, which costs more than the element does.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  if (self.is_privateuseone() && has_plain_bytes(self) && !sanitizer::enabled()) [[likely]] {
    const StreamHold hold(current_stream(self.device().index()), LocalScalarDense::name);
    if (auto value = read_element(self.scalar_type(), kernel_data(self))) {
      return *value;
    }
  }
  return detail::OnCpu<LocalScalarDense, LocalScalarDense::schema>::call(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_local_scalar_dense", local_scalar_dense); }

}  // namespace torch_openreg
