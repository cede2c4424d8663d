// c10's device guard for PrivateUse1: how torch switches devices and streams and uses events.
#ifndef PYTHON_CSRC_RUNTIME_GUARD_H_
#define PYTHON_CSRC_RUNTIME_GUARD_H_

namespace torch_openreg {

// Called once, when the extension is imported. Brings nothing to life.
void register_guard();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_GUARD_H_
