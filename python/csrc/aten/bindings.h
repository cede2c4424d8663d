// Python bindings of csrc/aten: what Python needs of the operators (switches and counters; the
// operators register themselves).
#ifndef PYTHON_CSRC_ATEN_BINDINGS_H_
#define PYTHON_CSRC_ATEN_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace torch_openreg {

void bind_aten(pybind11::module_& module);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_BINDINGS_H_
