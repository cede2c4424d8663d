// Copies within a device, between devices, and between a device and the host.
#ifndef PYTHON_CSRC_ATEN_COPY_H_
#define PYTHON_CSRC_ATEN_COPY_H_

#include <ATen/core/Tensor.h>

namespace torch_openreg {

// Tensor.copy_ where at least one side is on openreg: any dtypes and strides, `src` broadcast.
// Stream-ordered; the host waits only where it gets the result: for a copy to the host that is
// blocking or goes to memory that is not pinned. Host memory that is read may change after the
// call unless it is pinned and the copy non-blocking.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_COPY_H_
