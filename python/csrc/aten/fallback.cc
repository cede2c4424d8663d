#include "python/csrc/aten/fallback.h"

#include <torch/library.h>

#include <utility>
#include <vector>

#include "python/csrc/aten/boxed_call.h"
#include "python/csrc/aten/composite.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/deferral.h"
#include "python/csrc/aten/operator_lists.h"

namespace torch_openreg {
namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

void wrap_result(Composites& tensors, IValue& value) {
  if (value.isTensor()) {
    value = tensors.wrap(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor& tensor : std::move(value).toTensorVector()) {
      list.push_back(tensors.wrap(std::move(tensor)));
    }
    value = std::move(list);
  }
}

// The CPU's key for the kind of tensors (dense, sparse, nested) that `keys` is about.
DispatchKey cpu_key(c10::DispatchKeySet keys) {
  return c10::toRuntimePerBackendFunctionalityKey(keys.highestFunctionalityKey(),
                                                  c10::BackendComponent::CPUBit);
}

void check_exists(const c10::OperatorHandle& op, DispatchKey key) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(key), "The operator '", op.operator_name(),
      "' does not exist for openreg", key == DispatchKey::CPU ? "" : " with such tensors",
      ": it has no kernel of its own and the CPU, whose kernel would compute it, has none either (",
      key, ").");
}

// A kernel of torch's own. Others may run Python, which must not find its allocations on a device.
bool is_torch_kernel(const c10::OperatorHandle& op) {
  return op.schema().name().rfind("aten::", 0) == 0;
}

}  // namespace

namespace {

// Waits until the device's stream is empty, if it has to.
void compute(const c10::OperatorHandle& op, DispatchKey key, CpuCall& call,
             const std::vector<at::Tensor>& originals, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  Composites tensors(call);
  const at::Tensor* next = originals.data();
  replace_tensors(schema, stack->data() + begin,
                  [&](const at::Tensor&, bool written) { return tensors.add(*next++, written); });
  replace_devices(schema, stack->data() + begin, call);
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  call.finish();
  tensors.finish();
  for (size_t i = begin; i < stack->size(); ++i) {
    wrap_result(tensors, (*stack)[i]);
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

void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const DispatchKey key = cpu_key(keys);
  check_exists(op, key);
  const c10::FunctionSchema& schema = op.schema();
  const char* name = schema.name().c_str();
  const size_t count = schema.arguments().size();

  DeviceFinder finder(name);
  if (accepts_host_tensors(schema.name())) {
    finder.allow_host_tensors();
  }
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  bool to_host = false;
  const auto arguments = torch::jit::last(*stack, count);
  for_each_tensor(schema, arguments, [&](const at::Tensor& tensor, bool written) {
    written ? finder.see_written(tensor) : finder.see(tensor);
    to_host = to_host || (written && tensor.defined() && tensor.device().is_cpu());
    tensors.push_back(tensor);
  });
  for (const IValue& value : arguments) {
    if (value.isDevice()) {
      finder.see(std::optional<c10::Device>(value.toDevice()));
    } else if (value.isGenerator()) {
      finder.see(std::optional<at::Generator>(value.toGenerator()));
    }
  }

  const c10::DeviceIndex device = finder.device();
  if (key == DispatchKey::CPU && is_torch_kernel(op) &&
      (may_be_deferred(schema) || makes_tensors(schema))) {
    CpuCall call(std::try_to_lock, name, device);
    if (call) [[likely]] {
      compute(op, key, call, tensors, stack);
      return;
    }
    if (queue(op, device, stack)) {
      return;
    }
  }
  CpuCall call(name, device, is_torch_kernel(op) && !to_host);
  compute(op, key, call, tensors, stack);
}

namespace {

// Quantized tensors of the device: there are none.
void refuse_quantized(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                      Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "openreg has no quantized tensors: '", op.operator_name(),
                              "' was called for one. Convert the tensor with dequantize(), or move "
                              "it with cpu() first.");
}

// The kernels that torch would compose for an unknown device although the CPU has its own.
bool is_composed_elsewhere(const c10::OperatorHandle& op, DispatchKey cpu) {
  return op.hasKernelForDispatchKey(cpu) &&
         (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional) ||
          op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
          (cpu != DispatchKey::CPU &&
           op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)));
}

bool is_preferred(const c10::OperatorHandle& op, DispatchKey cpu) {
  if (is_composed_elsewhere(op, cpu)) {
    return true;
  }
  const c10::OperatorName& name = op.operator_name();
  return cpu == DispatchKey::CPU &&
         (name.name.rfind("aten::_foreach_", 0) == 0 || is_composed_for_cpu_only(name));
}

}  // namespace

void register_preferred_fallbacks() {
  constexpr std::pair<DispatchKey, DispatchKey> kKeys[] = {
      {DispatchKey::CPU, DispatchKey::PrivateUse1},
      {DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1},
      {DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1},
      {DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1}};
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [cpu, own] : kKeys) {
    // Kept for ever: destroying it would take the registrations back.
    auto* const library = new torch::Library(torch::Library::IMPL, "aten", own, __FILE__, __LINE__);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) {
        continue;
      }
      const auto op = dispatcher.findOp(name);
      if (op.has_value() && !op->hasKernelForDispatchKey(own) && is_preferred(*op, cpu)) {
        library->impl(c10::toString(name).c_str(),
                      torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
      }
    }
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

}  // namespace torch_openreg
