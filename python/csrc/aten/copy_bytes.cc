#include "python/csrc/aten/copy_bytes.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/is_pinned_ops.h>

#include "openreg/api/openreg.h"
#include "python/csrc/aten/alias.h"
#include "python/csrc/runtime/host_memory.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/profiler.h"

namespace torch_openreg {
namespace {

// From here a memcpy takes longer (about 100 us) than handing it to the stream's worker.
constexpr std::size_t kAsyncBytes = std::size_t{1} << 20;

const char* name_of(const at::Tensor& self, const at::Tensor& src) {
  if (src.is_cpu()) {
    return is_pinned(src) ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)";
  }
  if (self.is_cpu()) {
    return is_pinned(self) ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy DtoH (Device -> Pageable)";
  }
  return self.device() == src.device() ? "Memcpy DtoD (Device -> Device)"
                                       : "Memcpy PtoP (Device -> Device)";
}

}  // namespace

bool is_pinned(const at::Tensor& tensor) {
  return at::_ops::is_pinned::call(tensor, /*device=*/std::nullopt);
}

bool has_plain_bytes(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.has_storage() && !impl.key_set().has_any(kLazyKeys) &&
         impl.is_non_overlapping_and_dense() &&
         !impl.unsafe_storage().unsafeGetStorageImpl()->has_materializer();
}

bool same_bytes(const at::Tensor& self, const at::Tensor& src) {
  return self.scalar_type() == src.scalar_type() && self.is_conj() == src.is_conj() &&
         self.is_neg() == src.is_neg() && self.sizes() == src.sizes() &&
         self.strides() == src.strides() && self.is_non_overlapping_and_dense();
}

void* kernel_data(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  auto* const data = static_cast<char*>(kernel_ptr(
      impl.unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get()));
  return data + impl.storage_offset() * static_cast<std::int64_t>(impl.itemsize());
}

bool copy_bytes_async(const at::Tensor& self, const at::Tensor& src, const at::Tensor& host,
                      const OpenregStream& stream) {
  if (src.nbytes() < kAsyncBytes || !same_bytes(self, src) || !is_pinned(host)) {
    return false;
  }
  const c10::DataPtr& block = host.storage().data_ptr();
  OR_CHECK(orMemcpyAsync(self.mutable_data_ptr(), src.const_data_ptr(), src.nbytes(),
                         orMemcpyDefault, stream.handle));
  if (!host_allocator()->record_event(const_cast<void*>(host.const_data_ptr()), block.get_context(),
                                      stream)) {
    // Pinned, but not the allocator's (orHostRegister): nobody else keeps it.
    synchronize_stream(stream);
  }
  return true;
}

bool copy_large_bytes(const at::Tensor& self, const at::Tensor& src) {
  constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
  if (src.nbytes() < kLargeBytes || self.is_alias_of(src) || !same_bytes(self, src) ||
      !has_plain_bytes(self) || !has_plain_bytes(src)) {
    return false;
  }
  orKernelMemcpy(kernel_data(self), kernel_data(src), src.nbytes());
  return true;
}

void report_copy(const at::Tensor& self, const at::Tensor& src, const OpenregStream& stream) {
  if (!profiling()) [[likely]] {
    return;
  }
  if (self.device() != src.device() || same_bytes(self, src)) {
    OR_CHECK(
        orStreamSetActivity(stream.handle, orActivityMemcpy, name_of(self, src), src.nbytes()));
  }
}

}  // namespace torch_openreg
