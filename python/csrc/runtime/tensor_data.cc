// Whether `a.data = b` may turn a tensor of the CPU into one of openreg and back.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_openreg {
namespace {

// torch's own list of the backends whose dense tensors stand for each other (TensorImpl.h) knows
// CUDA, XPU, HPU, MTIA and MPS, but no PrivateUse1. Module.to() and FSDP2 assign .data and rely on
// it: without this kernel each Parameter would become another object, and an optimizer made before
// would go on with the old ones. A dense tensor of openreg is a plain TensorImpl with a storage, as
// the CPU's.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  constexpr auto dense = c10::DispatchKeySet(c10::DispatchKey::Dense);
  constexpr auto backends =
      c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
  const auto is_dense = [&](const at::Tensor& tensor) {
    const c10::DispatchKeySet keys = tensor.key_set();
    return keys.has_any(dense) && keys.has_any(backends);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace torch_openreg
