// Operators that need to be known by name.
#ifndef PYTHON_CSRC_ATEN_OPERATOR_LISTS_H_
#define PYTHON_CSRC_ATEN_OPERATOR_LISTS_H_

#include <ATen/core/operator_name.h>

#include <string_view>

namespace torch_openreg {

// True if CUDA's kernel of `op` ("aten::index") takes host tensors with dimensions (indices,
// lengths); everywhere else they are an error, as they are there.
bool accepts_host_tensors(std::string_view op);

// True if torch composes the operator for every device, but with a kernel or a check inside that
// knows the CPU and CUDA only.
bool is_composed_for_cpu_only(const c10::OperatorName& op);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_OPERATOR_LISTS_H_
