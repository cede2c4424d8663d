#include "python/csrc/aten/deferral.h"

#include <ATen/ops/clone_ops.h>
#include <ATen/ops/empty_strided_ops.h>

#include <memory>
#include <utility>
#include <vector>

#include "python/csrc/aten/boxed_call.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/snapshot.h"
#include "python/csrc/runtime/deferred.h"

namespace torch_openreg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::jit::Stack;

constexpr auto kOpenreg = c10::DeviceType::PrivateUse1;

at::Tensor to_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.device().is_cpu() && tensor.dim() == 0)) {
    return tensor;  // meta kernels take scalars of the host, as the device's do
  }
  return at::_ops::empty_strided::call(tensor.sym_sizes(), tensor.sym_strides(),
                                       tensor.scalar_type(), std::nullopt,
                                       c10::Device(c10::DeviceType::Meta), std::nullopt);
}

// Runs the meta kernel. False if there is none, or if it resized what is written.
bool passes_on_meta(const c10::OperatorHandle& op, const Stack& arguments) {
  if (!op.hasComputedKernelForDispatchKey(DispatchKey::Meta)) {
    return false;
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> written_tensors;
  Stack stack = arguments;
  replace_tensors(op.schema(), stack.data(), [&](const at::Tensor& tensor, bool written) {
    at::Tensor meta = to_meta(tensor);
    if (written && tensor.defined()) {
      written_tensors.emplace_back(tensor, meta);
    }
    return meta;
  });
  try {
    op.redispatchBoxed(DispatchKeySet(DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    return false;
  }
  for (const auto& [tensor, meta] : written_tensors) {
    if (tensor.sizes() != meta.sizes() || tensor.strides() != meta.strides()) {
      return false;
    }
  }
  return true;
}

// Everything that the operator needs, as it is now.
class OperatorTask final : public DeferredTask {
 public:
  OperatorTask(c10::OperatorHandle op, c10::DeviceIndex device, const Stack& arguments)
      : op_(op), device_(device), arguments_(arguments) {
    Snapshots snapshots;
    replace_tensors(op_.schema(), arguments_.data(), [&](const at::Tensor& tensor, bool) {
      if (!tensor.defined() || !tensor.device().is_cpu()) {
        return snapshots.take(tensor);
      }
      // The host may write to its tensors before the device comes to read them.
      at::Tensor copy = at::_ops::clone::call(tensor, std::nullopt);
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
      return copy;
    });
  }

  void run() override {
    CpuCall call(device_);
    std::vector<at::Tensor> originals;
    for_each_tensor(op_.schema(), arguments_,
                    [&](const at::Tensor& tensor, bool) { originals.push_back(tensor); });
    const at::Tensor* next = originals.data();
    Stack stack = arguments_;
    replace_tensors(op_.schema(), stack.data(), [&](const at::Tensor&, bool written) {
      return call.at(call.add(*next++, written));
    });
    replace_devices(op_.schema(), stack.data(), call);
    op_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack);
  }

 private:
  c10::OperatorHandle op_;
  c10::DeviceIndex device_;
  Stack arguments_;
};

}  // namespace

bool may_be_deferred(const c10::FunctionSchema& schema) {
  bool writes = false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (takes_generator(argument)) {
      return false;
    }
    writes = writes || is_written(argument);
  }
  for (const c10::Argument& result : schema.returns()) {
    if (!is_written(result) || result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return writes;
}

bool defer(const c10::OperatorHandle& op, const OpenregStream& stream, const Stack& arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isStorage()) {
      return false;
    }
  }
  if (!passes_on_meta(op, arguments)) {
    return false;
  }
  enqueue(op.schema().name().c_str(), stream,
          std::make_unique<OperatorTask>(op, stream.device, arguments));
  return true;
}

}  // namespace torch_openreg
