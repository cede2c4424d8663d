#include "python/csrc/aten/storage.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {
namespace {

c10::DeviceIndex target_device(std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "openreg has no ",
                              layout.value_or(at::kStrided), " tensors");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return resolve_device(device.has_value() ? device->index() : c10::DeviceIndex{-1});
}

at::Tensor make_tensor(size_t nbytes, at::ScalarType dtype, c10::DeviceIndex device) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                       allocate(nbytes, device), device_allocator(),
                                                       /*resizable=*/true);
  return at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor& fill_if_deterministic(at::Tensor& tensor) {
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceIndex index = target_device(layout, device, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(size);
  const size_t itemsize = c10::elementSize(type);
  at::Tensor tensor =
      make_tensor(at::detail::computeStorageNbytesContiguous(size, itemsize), type, index);
  if (size.size() != 1 || size[0] != 0) {
    tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  }
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return fill_if_deterministic(tensor);
}

at::Tensor empty_strided_op(at::IntArrayRef size, at::IntArrayRef stride,
                            std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                            std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = target_device(layout, device, pin_memory);
  at::Tensor tensor = empty_strided(size, stride, c10::dtype_or_default(dtype), index);
  return fill_if_deterministic(tensor);
}

// As the CPU's resize_, except that a storage grows on the device.
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  const c10::Storage& storage = self.unsafeGetTensorImpl()->unsafe_storage();
  const auto nbytes_before = static_cast<int64_t>(storage.nbytes());
  torch_openreg::resize(self, size, at::OptionalIntArrayRef());
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ",
                *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
      [[unlikely]] {
    at::native::fill_resize_deterministic_(self, nbytes_before);
  }
  return self;
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset,
                                      at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  torch_openreg::resize(
      self, size,
      stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : at::OptionalIntArrayRef());
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset(self, std::move(source), 0, size, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) {
    return self;
  }
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on ",
              self.device(), " to one on ", source.device(), "; the devices must match.");
  return set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                                   source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       allocate(0, self.device().index()),
                                                       device_allocator(), /*resizable=*/true);
  return set_source_storage_offset(self, c10::Storage(std::move(storage)), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype,
                         c10::DeviceIndex device) {
  at::detail::check_size_nonnegative(size);
  const size_t itemsize = c10::elementSize(dtype);
  at::Tensor tensor =
      make_tensor(at::detail::computeStorageNbytes(size, stride, itemsize), dtype, device);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return tensor;
}

void resize(const at::Tensor& self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() == size && (!stride.has_value() || impl->strides() == *stride)) {
    return;
  }
  at::detail::check_size_nonnegative(size);
  const size_t itemsize = impl->itemsize();
  const int64_t offset = impl->storage_offset();
  const size_t nbytes = stride.has_value()
                            ? at::detail::computeStorageNbytes(size, *stride, itemsize, offset)
                            : at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  // First, so that a tensor for which there is no memory stays as it is.
  if (c10::multiply_integers(size) != 0 && nbytes > storage->nbytes()) {
    resize_storage(storage, nbytes);
  }
  if (stride.has_value()) {
    impl->set_sizes_and_strides(size, *stride);
  } else {
    impl->generic_set_sizes_contiguous(size);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided_op);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Storage_storage_offset", set_source_storage_offset);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_empty);
  m.impl("record_stream", record_stream);
}

}  // namespace torch_openreg
