// Python bindings of csrc/runtime: devices, streams, memory, random state: what torch.openreg is
// made of.
#ifndef PYTHON_CSRC_RUNTIME_BINDINGS_H_
#define PYTHON_CSRC_RUNTIME_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace torch_openreg {

void bind_runtime(pybind11::module_& module);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_BINDINGS_H_
