// torch's hooks for PrivateUse1: what generic code asks of the accelerator.
#ifndef PYTHON_CSRC_RUNTIME_HOOKS_H_
#define PYTHON_CSRC_RUNTIME_HOOKS_H_

namespace torch_openreg {

// Called once, when the extension is imported. Brings nothing to life.
void register_hooks();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_HOOKS_H_
