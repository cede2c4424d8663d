// Tensors and their storages on the device: made, resized, set.
#ifndef PYTHON_CSRC_ATEN_STORAGE_H_
#define PYTHON_CSRC_ATEN_STORAGE_H_

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_openreg {

// A tensor of `device` with memory of its own that is not initialised.
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype,
                         c10::DeviceIndex device);

// Gives `self` the sizes and strides (std::nullopt: contiguous), and its storage as many bytes as
// they need if it has fewer. The sizes that it has already change nothing, not even the strides.
void resize(const at::Tensor& self, at::IntArrayRef size, at::OptionalIntArrayRef stride);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_STORAGE_H_
