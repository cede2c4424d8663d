#include "python/csrc/aten/deferral.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/fill_ops.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "python/csrc/aten/boxed_call.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/snapshot.h"
#include "python/csrc/runtime/blocking.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::jit::Stack;

bool is_host_scalar(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.dim() == 0;
}

// `copy`, which is to stand for `tensor`, takes part in type promotion as that does.
at::Tensor promoting_as(const at::Tensor& tensor, at::Tensor copy) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

at::Tensor to_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  return promoting_as(tensor, at::_ops::empty_strided::call(
                                  tensor.sym_sizes(), tensor.sym_strides(), tensor.scalar_type(),
                                  std::nullopt, c10::Device(c10::DeviceType::Meta), std::nullopt));
}

// The CPU's. Ones are in every function's domain.
at::Tensor to_ones(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor ones =
      at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  at::_ops::fill__Scalar::redispatch(DispatchKeySet(DispatchKey::CPU), ones, 1);
  return promoting_as(tensor, std::move(ones));
}

// What an operator does to tensors that stand for its own.
struct Rehearsal {
  Stack results;
  // What is written, and all arguments, each with the tensor that stood for it.
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  std::vector<at::Tensor> arguments;
};

template <typename F>
Rehearsal rehearse_with(const c10::OperatorHandle& op, const Stack& arguments, DispatchKey kernel,
                        bool keep_host_scalars, F to_stand_in) {
  Rehearsal run;
  run.results = arguments;
  replace_tensors(op.schema(), run.results.data(), [&](const at::Tensor& tensor, bool written) {
    at::Tensor stand_in =
        keep_host_scalars && is_host_scalar(tensor) ? tensor : to_stand_in(tensor);
    if (written && tensor.defined()) {
      run.written.emplace_back(tensor, stand_in);
    }
    run.arguments.push_back(stand_in);
    return stand_in;
  });
  op.redispatchBoxed(DispatchKeySet(kernel), &run.results);
  return run;
}

// Whether the CPU's kernel is the cheaper one: it knows the results' shapes exactly, while many
// meta kernels are in Python, and the first of these imports torch._dynamo.
bool is_small_pointwise(const c10::OperatorHandle& op, const Stack& arguments) {
  constexpr std::int64_t kFewElements = 16'384;
  if (!op.hasTag(at::Tag::pointwise) || op.hasTag(at::Tag::nondeterministic_seeded) ||
      !op.hasComputedKernelForDispatchKey(DispatchKey::CPU)) {
    return false;
  }
  bool small = true;
  std::vector<std::int64_t> extents;  // of what all are broadcast to, the last dimension first
  for_each_tensor(op.schema(), arguments, [&](const at::Tensor& tensor, bool) {
    if (!tensor.defined() || !small) {
      return;
    }
    const auto sizes = tensor.sizes();
    small = tensor.layout() == at::kStrided && !tensor.is_quantized() &&
            at::detail::computeStorageNbytes(sizes, tensor.strides(), 1) <= kFewElements;
    extents.resize(std::max(extents.size(), sizes.size()), 1);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      extents[i] = std::max(extents[i], sizes[sizes.size() - 1 - i]);
    }
  });
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) {
    elements = std::min(elements * extent, kFewElements + 1);
  }
  return small && elements <= kFewElements;
}

Rehearsal run_meta_kernel(const c10::OperatorHandle& op, const Stack& arguments,
                          bool keep_host_scalars) {
  return rehearse_with(op, arguments, DispatchKey::Meta, keep_host_scalars, to_meta);
}

// Nothing if there is no meta kernel, or none that could know the results' shapes: the out= forms
// of nonzero and masked_select have one in Python that only throws.
std::optional<Rehearsal> rehearse(const c10::OperatorHandle& op, const Stack& arguments) {
  if (is_small_pointwise(op, arguments)) {
    return rehearse_with(op, arguments, DispatchKey::CPU, /*keep_host_scalars=*/true, to_ones);
  }
  if (!op.hasComputedKernelForDispatchKey(DispatchKey::Meta) ||
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) {
    return std::nullopt;
  }
  bool host_scalars = false;
  for_each_tensor(op.schema(), arguments, [&](const at::Tensor& tensor, bool) {
    host_scalars = host_scalars || is_host_scalar(tensor);
  });
  try {
    if (host_scalars) {
      // Some meta kernels in Python want all tensors on one device (copysign, div with a rounding
      // mode), others read scalars of the host.
      try {
        return run_meta_kernel(op, arguments, /*keep_host_scalars=*/false);
      } catch (const std::exception&) {
        // The other form decides.
      }
    }
    return run_meta_kernel(op, arguments, /*keep_host_scalars=*/true);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

// True if it can be rehearsed, and then resizes nothing that is written.
bool keeps_sizes(const c10::OperatorHandle& op, const Stack& arguments) {
  const std::optional<Rehearsal> run = rehearse(op, arguments);
  if (!run.has_value()) {
    return false;
  }
  for (const auto& [tensor, stand_in] : run->written) {
    if (tensor.sizes() != stand_in.sizes() || tensor.strides() != stand_in.strides()) {
      return false;
    }
  }
  return true;
}

// Tensors of `device` for the results of a rehearsal. Nothing if one of them is no new tensor.
std::optional<std::vector<at::Tensor>> make_results(const Rehearsal& run, c10::DeviceIndex device) {
  std::vector<at::Tensor> made;
  for (const c10::IValue& result : run.results) {
    if (!result.isTensor() || !result.toTensor().defined() ||
        result.toTensor().layout() != at::kStrided) {
      return std::nullopt;
    }
    const at::Tensor& expected = result.toTensor();
    for (const at::Tensor& argument : run.arguments) {
      if (argument.defined() && argument.is_alias_of(expected)) {
        return std::nullopt;
      }
    }
    made.push_back(at::_ops::empty_strided::call(expected.sym_sizes(), expected.sym_strides(),
                                                 expected.scalar_type(), std::nullopt,
                                                 c10::Device(kOpenreg, device), std::nullopt));
  }
  return made;
}

// Everything that the operator needs, as it is now.
class OperatorTask final : public DeferredTask {
 public:
  // `made`: what the results are copied to; empty if the operator writes to its arguments.
  OperatorTask(c10::OperatorHandle op, c10::DeviceIndex device, const Stack& arguments,
               const std::vector<at::Tensor>& made = {})
      : op_(op), device_(device), arguments_(arguments) {
    Snapshots snapshots;
    for (const at::Tensor& tensor : made) {
      made_.push_back(snapshots.take(tensor));
    }
    replace_tensors(op_.schema(), arguments_.data(), [&](const at::Tensor& tensor, bool) {
      if (!tensor.defined() || !tensor.device().is_cpu()) {
        return snapshots.take(tensor);
      }
      // The host may write to its tensors before the device comes to read them.
      return promoting_as(tensor, at::_ops::clone::call(tensor, std::nullopt));
    });
  }

  void run() override {
    struct End {
      std::atomic<bool>& done;
      ~End() { done.store(true, std::memory_order_release); }
    } const end{*done_};
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
    std::vector<size_t> targets;
    for (const at::Tensor& made : made_) {
      targets.push_back(call.add(made, /*written=*/false));
    }
    op_.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack);
    for (size_t i = 0; i < targets.size(); ++i) {
      at::Tensor target = call.at(targets[i]);
      at::_ops::copy_::redispatch(DispatchKeySet(DispatchKey::CPU), target, stack[i].toTensor(),
                                  /*non_blocking=*/false);
    }
  }

  std::shared_ptr<std::atomic<bool>> done() const { return done_; }

 private:
  c10::OperatorHandle op_;
  c10::DeviceIndex device_;
  Stack arguments_;
  std::vector<at::Tensor> made_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

// How long the host waits for a stream before it queues an operator whose results it makes. Far
// longer than computing takes that is on its way, far shorter than a deadline.
constexpr std::int64_t kPatienceMs = 20;

// The stream on which this thread last ran out of patience, and whether what it queued there then
// has ended. Until it has, the stream has been busy ever since: no use in waiting again.
struct Backlog {
  orStream_t stream = nullptr;
  std::shared_ptr<std::atomic<bool>> ended;
};
thread_local Backlog backlog;

bool empties_soon(const OpenregStream& stream) {
  if (backlog.stream == stream.handle && !backlog.ended->load(std::memory_order_acquire)) {
    return false;
  }
  const orError_t error = wait_without_gil(kPatienceMs, [&](std::int64_t slice_ms) {
    return orStreamAcquire(stream.handle, nullptr, slice_ms);
  });
  if (error == orSuccess) {
    OR_CHECK(orStreamRelease(stream.handle));
  }
  return error != orErrorTimeout;
}

// The same that CpuCall tells of what it runs at once.
void sanitize(const c10::OperatorHandle& op, const OpenregStream& stream, const Stack& arguments,
              const std::vector<at::Tensor>& made) {
  if (!sanitizer::enabled()) [[likely]] {
    return;
  }
  std::deque<at::Tensor> kept;
  std::vector<sanitizer::Use> uses;
  for_each_tensor(op.schema(), arguments, [&](const at::Tensor& tensor, bool written) {
    kept.push_back(tensor);
    uses.push_back({&kept.back(), written});
  });
  for (const at::Tensor& tensor : made) {
    uses.push_back({&tensor, true});
  }
  sanitizer::operation(op.schema().name().c_str(), stream, uses);
}

}  // namespace

bool makes_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (takes_generator(argument) || is_written(argument)) {
      return false;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr || result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return !schema.returns().empty();
}

std::optional<Stack> defer_making(const c10::OperatorHandle& op, const OpenregStream& stream,
                                  const Stack& arguments) {
  const char* name = op.schema().name().c_str();
  // Elsewhere the CPU's results need not have the meta kernel's shapes (batch norm saves nothing
  // in evaluation).
  if (!op.hasTag(at::Tag::pointwise) || empties_soon(stream)) {
    return std::nullopt;
  }
  const std::optional<Rehearsal> run = rehearse(op, arguments);
  std::optional<std::vector<at::Tensor>> made;
  if (run.has_value()) {
    made = make_results(*run, stream.device);
  }
  if (!made.has_value()) {
    return std::nullopt;
  }
  sanitize(op, stream, arguments, *made);
  auto task = std::make_unique<OperatorTask>(op, stream.device, arguments, *made);
  std::shared_ptr<std::atomic<bool>> done = task->done();
  enqueue(name, stream, std::move(task));
  backlog = {stream.handle, std::move(done)};
  return Stack(made->begin(), made->end());
}

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
  if (!keeps_sizes(op, arguments)) {
    return false;
  }
  sanitize(op, stream, arguments, {});
  enqueue(op.schema().name().c_str(), stream,
          std::make_unique<OperatorTask>(op, stream.device, arguments));
  return true;
}

}  // namespace torch_openreg
