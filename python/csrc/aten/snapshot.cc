#include "python/csrc/aten/snapshot.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <memory>

#include "python/csrc/aten/alias.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/sanitizer/switch.h"

namespace torch_openreg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

void drop_storage(void* context) { delete static_cast<c10::Storage*>(context); }

// The memory of `storage`, which it keeps.
c10::DataPtr keep(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (sanitizer::enabled()) [[unlikely]] {
    // When memory is given back must not depend on what happens to be queued still.
    if (c10::DataPtr block = hold_block(impl->_mutable_data_ptr_no_checks())) {
      return block;
    }
  }
  auto owner = std::make_unique<c10::Storage>(storage);
  c10::DataPtr data(impl->_mutable_data_ptr_no_checks().get(), owner.get(), drop_storage,
                    impl->device());
  owner.release();  // NOLINT: `data` owns it
  return data;
}

}  // namespace

c10::Storage Snapshots::storage_of(const c10::TensorImpl& tensor) {
  const c10::Storage& original = tensor.unsafe_storage();
  c10::StorageImpl* impl = original.unsafeGetStorageImpl();
  for (const auto& [seen, snapshot] : storages_) {
    if (seen == impl) {
      return snapshot;
    }
  }
  if (impl->has_materializer()) {
    impl->mutable_data();
  }
  // The allocator stays null: nothing may resize a snapshot.
  c10::Storage snapshot(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl->nbytes(), keep(original), /*allocator=*/nullptr,
      /*resizable=*/false));
  storages_.emplace_back(impl, snapshot);
  return snapshot;
}

at::Tensor Snapshots::take(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  for (const auto& [seen, snapshot] : tensors_) {
    if (seen == &impl) {
      return snapshot;
    }
  }
  const DispatchKey backend = tensor.is_cpu() ? DispatchKey::CPU : DispatchKey::PrivateUse1;
  auto copy = c10::make_intrusive<c10::TensorImpl>(
      storage_of(impl), DispatchKeySet(backend) | (impl.key_set() & kLazyKeys), impl.dtype());
  copy->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  if (impl.is_wrapped_number()) {
    copy->set_wrapped_number(true);
  }
  tensors_.emplace_back(&impl, at::Tensor(std::move(copy)));
  return tensors_.back().second;
}

}  // namespace torch_openreg
