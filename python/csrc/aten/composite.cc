#include "python/csrc/aten/composite.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace torch_openreg {
namespace {

using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;
using c10::DispatchKey;

bool is_nested(const c10::TensorImpl& tensor) {
  return tensor.key_set().has(DispatchKey::NestedTensor);
}

bool is_compressed(const c10::TensorImpl& tensor) {
  return tensor.key_set().has(DispatchKey::SparseCsr);
}

template <typename Impl>
Impl* as(const at::Tensor& tensor) {
  return static_cast<Impl*>(tensor.unsafeGetTensorImpl());
}

// `functionality` (Sparse, SparseCsr) with the backend of `device`.
c10::DispatchKeySet keys_for(DispatchKey functionality, c10::Device device) {
  return c10::DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(
      functionality,
      device.is_cpu() ? c10::BackendComponent::CPUBit : c10::BackendComponent::PrivateUse1Bit));
}

// The dense tensors that it is made of, each with its storage: indices and values, or the buffer.
std::vector<at::Tensor> parts_of(const at::Tensor& composite) {
  const c10::TensorImpl& impl = *composite.unsafeGetTensorImpl();
  if (is_nested(impl)) {
    return {as<NestedTensorImpl>(composite)->get_unsafe_storage_as_tensor()};
  }
  if (is_compressed(impl)) {
    const auto* compressed = as<SparseCsrTensorImpl>(composite);
    return {compressed->compressed_indices(), compressed->plain_indices(), compressed->values()};
  }
  const auto* sparse = as<SparseTensorImpl>(composite);
  return {sparse->indices(), sparse->values()};
}

// Makes `target` what `like` is: its sizes, and `parts` (as parts_of has them) in the place of its
// own. A nested tensor's are constant.
void recompose(const at::Tensor& target, const at::Tensor& like,
               const std::vector<at::Tensor>& parts) {
  if (is_nested(*like.unsafeGetTensorImpl())) {
    return;
  }
  if (is_compressed(*like.unsafeGetTensorImpl())) {
    as<SparseCsrTensorImpl>(target)->set_member_tensors(parts[0], parts[1], parts[2], like.sizes());
    return;
  }
  const auto* from = as<SparseTensorImpl>(like);
  auto* to = as<SparseTensorImpl>(target);
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
  to->set_indices_and_values_unsafe(parts[0], parts[1]);
  to->set_coalesced(from->coalesced());
}

// A tensor of the kind, sizes and dtype of `like`, made of `parts`, on their device: the CPU or
// openreg.
at::Tensor compose(const at::Tensor& like, const std::vector<at::Tensor>& parts) {
  const c10::TensorImpl& impl = *like.unsafeGetTensorImpl();
  if (is_nested(impl)) {
    const auto* nested = as<NestedTensorImpl>(like);
    return at::detail::make_tensor<NestedTensorImpl>(parts[0], nested->get_nested_sizes(),
                                                     nested->get_nested_strides(),
                                                     nested->get_storage_offsets());
  }
  const c10::Device device = parts[0].device();
  const c10::DeviceGuard guard(device);  // where a sparse tensor is made
  at::Tensor tensor =
      is_compressed(impl)
          ? at::detail::make_tensor<SparseCsrTensorImpl>(keys_for(DispatchKey::SparseCsr, device),
                                                         device, impl.layout(), impl.dtype())
          : at::detail::make_tensor<SparseTensorImpl>(keys_for(DispatchKey::Sparse, device),
                                                      impl.dtype());
  recompose(tensor, like, parts);
  return tensor;
}

}  // namespace

bool is_composite(const at::Tensor& tensor) {
  return tensor.defined() &&
         tensor.key_set().has_any(c10::DispatchKeySet(
             {DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::NestedTensor}));
}

at::Tensor Composites::add(const at::Tensor& original, bool written) {
  if (!is_composite(original)) {
    return call_.at(call_.add(original, written));
  }
  if (original.device().is_cpu()) {
    entries_.push_back({original, &original, false});
    return original;
  }
  std::vector<at::Tensor> aliases;
  // The same tensor twice has to stay one, as in CpuCall::add.
  for (Entry& entry : entries_) {
    if (entry.original->is_same(original)) {
      for (const at::Tensor& part : parts_of(original)) {
        call_.add(part, written);
      }
      entry.written = entry.written || written;
      return entry.host;
    }
  }
  for (at::Tensor& part : parts_of(original)) {
    parts_.push_back(std::move(part));
    aliases.push_back(call_.at(call_.add(parts_.back(), written)));
  }
  entries_.push_back({compose(original, aliases), &original, written});
  return entries_.back().host;
}

std::vector<at::Tensor> Composites::wrapped_parts(const at::Tensor& composite) {
  std::vector<at::Tensor> parts = parts_of(composite);
  for (at::Tensor& part : parts) {
    part = call_.wrap(std::move(part));
  }
  return parts;
}

void Composites::finish() {
  for (const Entry& entry : entries_) {
    if (entry.written) {
      recompose(*entry.original, entry.host, wrapped_parts(entry.host));
    }
  }
}

at::Tensor Composites::wrap(at::Tensor&& result) {
  if (!is_composite(result)) {
    return call_.wrap(std::move(result));
  }
  for (const Entry& entry : entries_) {
    if (entry.host.is_same(result)) {
      return *entry.original;
    }
  }
  return compose(result, wrapped_parts(result));
}

}  // namespace torch_openreg
