#include "python/csrc/aten/fallback.h"

#include <torch/library.h>

#include <utility>
#include <vector>

#include "python/csrc/aten/boxed_call.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/deferral.h"
#include "python/csrc/aten/operator_lists.h"

namespace torch_openreg {
namespace {

using c10::IValue;
using torch::jit::Stack;

void wrap_result(CpuCall& call, IValue& value) {
  if (value.isTensor()) {
    value = call.wrap(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor& tensor : std::move(value).toTensorVector()) {
      list.push_back(call.wrap(std::move(tensor)));
    }
    value = std::move(list);
  }
}

void check_exists(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "The operator '",
      op.operator_name(),
      "' does not exist for openreg: it has no kernel of its own and the CPU, whose kernel would "
      "compute it, has none either.");
}

// A kernel of torch's own. Others may run Python, which must not find its allocations on a device.
bool is_torch_kernel(const c10::OperatorHandle& op) {
  return op.schema().name().rfind("aten::", 0) == 0;
}

}  // namespace

namespace {

// Waits until the device's stream is empty, if it has to.
void compute(const c10::OperatorHandle& op, CpuCall& call, const std::vector<at::Tensor>& tensors,
             Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  const at::Tensor* next = tensors.data();
  replace_tensors(schema, stack->data() + begin, [&](const at::Tensor&, bool written) {
    return call.at(call.add(*next++, written));
  });
  replace_devices(schema, stack->data() + begin, call);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.finish();
  for (size_t i = begin; i < stack->size(); ++i) {
    wrap_result(call, (*stack)[i]);
  }
}

// The results of an operator that was queued: the arguments that it writes to, in their order.
void return_written(const c10::FunctionSchema& schema, Stack* stack) {
  const size_t count = schema.arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  size_t returned = 0;
  for (size_t i = 0; i < count && returned < schema.returns().size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      stack->push_back(arguments[i]);
      ++returned;
    }
  }
}

// Queues the operator on a busy stream, if that is possible; its results are on the stack then.
bool queue(const c10::OperatorHandle& op, c10::DeviceIndex device, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const OpenregStream stream = current_stream(device);
  const Stack arguments = torch::jit::last(*stack, count).vec();
  if (!makes_tensors(schema)) {
    const bool queued = defer(op, stream, arguments);
    if (queued) {
      return_written(schema, stack);
    }
    return queued;
  }
  const std::optional<Stack> made = defer_making(op, stream, arguments);
  if (made.has_value()) {
    torch::jit::drop(*stack, count);
    stack->insert(stack->end(), made->begin(), made->end());
  }
  return made.has_value();
}

}  // namespace

void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  check_exists(op);
  const c10::FunctionSchema& schema = op.schema();
  const char* name = schema.name().c_str();
  const size_t count = schema.arguments().size();

  DeviceFinder finder(name);
  if (accepts_host_tensors(schema.name())) {
    finder.allow_host_tensors();
  }
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  const auto arguments = torch::jit::last(*stack, count);
  for_each_tensor(schema, arguments, [&](const at::Tensor& tensor, bool written) {
    written ? finder.see_written(tensor) : finder.see(tensor);
    tensors.push_back(tensor);
  });
  for (const IValue& value : arguments) {
    if (value.isDevice()) {
      finder.see(std::optional<c10::Device>(value.toDevice()));
    }
  }

  const c10::DeviceIndex device = finder.device();
  if (is_torch_kernel(op) && (may_be_deferred(schema) || makes_tensors(schema))) {
    CpuCall call(std::try_to_lock, name, device);
    if (call) [[likely]] {
      compute(op, call, tensors, stack);
      return;
    }
    if (queue(op, device, stack)) {
      return;
    }
  }
  CpuCall call(name, device, is_torch_kernel(op));
  compute(op, call, tensors, stack);
}

namespace {

// Sparse, quantized and nested tensors of the device: there are none.
void refuse_layout(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg has dense tensors only: '", op.operator_name(),
                              "' was called with ", keys.highestPriorityTypeId(),
                              ". Convert the tensor with to_dense() or dequantize(), or move it "
                              "with cpu() first.");
}

void register_refusal(torch::Library& m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}

}  // namespace

void register_preferred_fallbacks() {
  // Kept for ever: destroying it would take the registrations back.
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findOp(name);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    const bool composed_elsewhere =
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd));
    const bool foreach = name.name.rfind("aten::_foreach_", 0) == 0;
    if (composed_elsewhere || foreach || is_composed_for_cpu_only(name)) {
      library->impl(c10::toString(name).c_str(),
                    torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { register_refusal(m); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { register_refusal(m); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { register_refusal(m); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { register_refusal(m); }

}  // namespace torch_openreg
