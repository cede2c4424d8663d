// What computes every operator that has no kernel of its own: the CPU's kernel, without copying.
#ifndef PYTHON_CSRC_ATEN_FALLBACK_H_
#define PYTHON_CSRC_ATEN_FALLBACK_H_

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_openreg {

// Computes `op` by the CPU's kernel on aliases of the arguments on `stack` (see CpuCall). Throws
// NotImplementedError for an operator that has no such kernel.
void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

// Lets cpu_fallback also compute operators that torch would compose for an unknown device although
// the CPU has a kernel (from their `out=` form, mostly), and foreach operators, which would become
// one operator a tensor. Called once, after all kernels of the extension are registered.
void register_preferred_fallbacks();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_FALLBACK_H_
