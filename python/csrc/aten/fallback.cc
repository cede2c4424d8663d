#include "python/csrc/aten/fallback.h"

#include <torch/library.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/host_arguments.h"

namespace torch_openreg {
namespace {

using c10::IValue;
using torch::jit::Stack;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool takes_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    return type->expectRef<c10::OptionalType>().getElementType()->kind() ==
           c10::TypeKind::GeneratorType;
  }
  return type->kind() == c10::TypeKind::GeneratorType;
}

// Takes the tensors of the arguments, in order, into `tensors`, and shows them to `finder`.
void collect(const c10::FunctionSchema& schema, at::ArrayRef<IValue> arguments,
             DeviceFinder& finder, std::vector<at::Tensor>& tensors) {
  const auto take = [&](const at::Tensor& tensor, bool written) {
    written ? finder.see_written(tensor) : finder.see(tensor);
    tensors.push_back(tensor);
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& value = arguments[i];
    const bool written = is_written(schema.arguments()[i]);
    if (value.isTensor()) {
      take(value.toTensor(), written);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        take(tensor, written);
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        if (tensor.has_value()) {
          take(*tensor, written);
        }
      }
    } else if (value.isDevice()) {
      finder.see(std::optional<c10::Device>(value.toDevice()));
    }
  }
}

// Replaces the arguments on the stack by what the CPU's kernel is to see. `next` is the first of
// the tensors that collect() took.
class Replacer {
 public:
  Replacer(CpuCall& call, const std::vector<at::Tensor>& tensors)
      : call_(call), next_(tensors.data()) {}

  void replace(const c10::Argument& argument, IValue& value) {
    const bool written = is_written(argument);
    if (value.isTensor()) {
      value = alias(written);
    } else if (value.isTensorList()) {
      const size_t size = value.toListRef().size();
      c10::List<at::Tensor> list;
      list.reserve(size);
      for (size_t i = 0; i < size; ++i) {
        list.push_back(alias(written));
      }
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      replace_optional_list(value, written);
    } else if (value.isDevice()) {
      if (value.toDevice().is_privateuseone()) {
        value = c10::Device(c10::DeviceType::CPU);
      }
    } else if ((value.isNone() || value.isGenerator()) && takes_generator(argument)) {
      value = call_.generator(value.toOptional<at::Generator>());
    }
  }

 private:
  at::Tensor alias(bool written) { return call_.at(call_.add(*next_++, written)); }

  void replace_optional_list(IValue& value, bool written) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(alias(written)) : std::nullopt);
    }
    value = std::move(list);
  }

  CpuCall& call_;
  const at::Tensor* next_;
};

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

void cpu_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  check_exists(op);
  const c10::FunctionSchema& schema = op.schema();
  const char* name = schema.name().c_str();
  const size_t count = schema.arguments().size();
  const size_t begin = stack->size() - count;

  DeviceFinder finder(name);
  if (accepts_host_tensors(schema.name())) {
    finder.allow_host_tensors();
  }
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  collect(schema, torch::jit::last(*stack, count), finder, tensors);

  CpuCall call(name, finder.device(), is_torch_kernel(op));
  Replacer replacer(call, tensors);
  for (size_t i = 0; i < count; ++i) {
    replacer.replace(schema.arguments()[i], (*stack)[begin + i]);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.finish();
  for (size_t i = begin; i < stack->size(); ++i) {
    wrap_result(call, (*stack)[i]);
  }
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
    const bool made_from_out =
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    const bool foreach = name.name.rfind("aten::_foreach_", 0) == 0;
    if (made_from_out || foreach) {
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
