// Lazily conjugated and negated tensors (x.conj(), x.conj().imag) in c10d's operators: OCCL's
// groups get them as they are.
//
// torch's fallback for such tensors hands resolved copies on, and copies back at the operator's
// return what its schema says is written. c10d's schemas do not say it, so a result would stay in
// the copy; those of _c10d_functional do, but there the copy is read before the work is done, and
// wait_tensor would look for the work of a copy. ProcessGroupOCCL reads and writes any view itself
// and copies back in the order of the stream (call.h).
//
// Lists of lists (the outputs of allgather_ and gather_) never reach the fallback; operators whose
// tensors are all read are well served by it. Neither is listed here.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/MathBitsFallback.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torch_openreg {
namespace {

constexpr const char* kOperators[] = {
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "broadcast_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
};

// They call those above, which ask the group, or wait.
constexpr const char* kFunctionalOperators[] = {
    "all_gather_into_tensor_out",
    "all_reduce_",
    "all_reduce_coalesced_",
    "batch_p2p_ops",
    "broadcast_",
    "irecv",
    "reduce_scatter_tensor_out",
    "wait_tensor",
};

// torch's own, which its library does not export.
template <c10::DispatchKey kKey>
class TorchsFallback final : public at::native::MathOpFallback {
 public:
  TorchsFallback()
      : MathOpFallback(kKey, kKey == c10::DispatchKey::Conjugate ? "conjugate" : "negation") {}
  bool is_bit_set(const at::Tensor& tensor) override {
    return kKey == c10::DispatchKey::Conjugate ? tensor.is_conj() : tensor.is_neg();
  }
};

// Other backends for openreg's tensors may not know lazy views. Throws what the operator would
// where the group has no backend for them.
bool may_reach_others(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::optional<int> place = schema.argumentIndexWithName("process_group");
  if (!place) {
    return false;
  }
  const auto group = torch::jit::peek(stack, *place, schema.arguments().size())
                         .toCustomClass<c10d::ProcessGroup>();
  return group->getBackend(c10::DeviceType::PrivateUse1)->getBackendName() != "occl";
}

// The keys are those of all devices: what is not openreg's is torch's.
template <c10::DispatchKey kKey>
void keep_lazy(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (keys.highestBackendKey() != c10::BackendComponent::PrivateUse1Bit ||
      may_reach_others(op.schema(), *stack)) {
    static TorchsFallback<kKey> fallback;
    fallback.fallback_impl(op, keys, stack);
    return;
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

template <c10::DispatchKey kKey, std::size_t kCount>
void add(torch::Library& library, const char* const (&operators)[kCount]) {
  for (const char* name : operators) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&keep_lazy<kKey>>());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(c10d, Conjugate, m) { add<c10::DispatchKey::Conjugate>(m, kOperators); }
TORCH_LIBRARY_IMPL(c10d, Negative, m) { add<c10::DispatchKey::Negative>(m, kOperators); }
TORCH_LIBRARY_IMPL(_c10d_functional, Conjugate, m) {
  add<c10::DispatchKey::Conjugate>(m, kFunctionalOperators);
}
TORCH_LIBRARY_IMPL(_c10d_functional, Negative, m) {
  add<c10::DispatchKey::Negative>(m, kFunctionalOperators);
}

}  // namespace torch_openreg
