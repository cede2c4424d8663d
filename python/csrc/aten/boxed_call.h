// The arguments of an operator as they lie on a stack, shown to the CPU's kernel and back.
#ifndef PYTHON_CSRC_ATEN_BOXED_CALL_H_
#define PYTHON_CSRC_ATEN_BOXED_CALL_H_

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "python/csrc/aten/cpu_call.h"

namespace torch_openreg {

// The operator writes to this argument.
bool is_written(const c10::Argument& argument);
// The argument is a generator, or may be one.
bool takes_generator(const c10::Argument& argument);

// Calls `see(tensor, written)` for every tensor among the arguments, in order, those of lists too.
void for_each_tensor(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments,
                     const std::function<void(const at::Tensor&, bool)>& see);

// Puts `replace(tensor, written)` in the place of every tensor among the arguments, which begin at
// `arguments`, in the same order.
void replace_tensors(const c10::FunctionSchema& schema, c10::IValue* arguments,
                     const std::function<at::Tensor(const at::Tensor&, bool)>& replace);

// Replaces what is left for the CPU's kernel: devices by the CPU, generators by CPU generators.
void replace_devices(const c10::FunctionSchema& schema, c10::IValue* arguments, CpuCall& call);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_BOXED_CALL_H_
