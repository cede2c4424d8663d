// `tensor.data = other`, also from the host to a device: what Module.to() moves parameters with, so
// that they stay the same objects (optimizers that were made before go on working).
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_openreg {
namespace {

using c10::BackendComponent;
using c10::DispatchKey;
using c10::DispatchKeySet;

bool is_of(const at::Tensor& tensor, DispatchKey functionality) {
  constexpr DispatchKeySet kBackends({BackendComponent::CPUBit, BackendComponent::PrivateUse1Bit});
  const DispatchKeySet keys = tensor.key_set();
  return keys.has_any(DispatchKeySet(functionality)) && keys.has_any(kBackends);
}

// As torch's own answer for CUDA: the types of tensors, and so what copies their fields, are the
// same for the CPU and openreg.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (self.key_set() == from.key_set()) {
    return true;
  }
  for (const DispatchKey kind : {DispatchKey::Dense, DispatchKey::Sparse, DispatchKey::SparseCsr}) {
    if (is_of(self, kind) && is_of(from, kind)) {
      return true;
    }
  }
  return false;
}

constexpr const char* kName = "_has_compatible_shallow_copy_type";

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl(kName, has_compatible_shallow_copy_type); }
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { m.impl(kName, has_compatible_shallow_copy_type); }
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl(kName, has_compatible_shallow_copy_type);
}

}  // namespace torch_openreg
