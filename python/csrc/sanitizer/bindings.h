#ifndef PYTHON_CSRC_SANITIZER_BINDINGS_H_
#define PYTHON_CSRC_SANITIZER_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace torch_openreg {

// The sanitizer's switch and its reports, for torch_openreg/openreg/sanitizer.py.
void bind_sanitizer(pybind11::module_& module);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_SANITIZER_BINDINGS_H_
