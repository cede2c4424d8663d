// Whether there still is an interpreter to go back to.
#ifndef PYTHON_CSRC_RUNTIME_INTERPRETER_H_
#define PYTHON_CSRC_RUNTIME_INTERPRETER_H_

#include <Python.h>

namespace torch_openreg {

// The interpreter ends or has ended: its lock must not be taken, nor anything of it touched. May be
// called without the lock.
inline bool interpreter_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_INTERPRETER_H_
