// Which operators take tensors of the host beside tensors of a device.
#ifndef PYTHON_CSRC_ATEN_HOST_ARGUMENTS_H_
#define PYTHON_CSRC_ATEN_HOST_ARGUMENTS_H_

#include <string_view>

namespace torch_openreg {

// True if CUDA's kernel of `op` ("aten::index") takes host tensors with dimensions (indices,
// lengths); everywhere else they are an error, as they are there.
bool accepts_host_tensors(std::string_view op);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_HOST_ARGUMENTS_H_
