// Python bindings of csrc/c10d: ProcessGroupOCCL, WorkOCCL and their options.
#ifndef PYTHON_CSRC_C10D_BINDINGS_H_
#define PYTHON_CSRC_C10D_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace torch_openreg {

void bind_c10d(pybind11::module_& module);
void bind_faults(pybind11::module_& module);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_BINDINGS_H_
