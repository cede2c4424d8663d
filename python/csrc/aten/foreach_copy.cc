// _foreach_copy_, also between devices and the host: what FSDP gathers and scatters with.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy_ops.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "openreg/api/openreg.h"
#include "python/csrc/aten/copy_bytes.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/snapshot.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {
namespace {

constexpr const char* kForeachCopyName = "aten::_foreach_copy_";

// All tensors of both lists are on one openreg device, and the copies need no broadcast.
bool on_one_device(at::TensorList self, at::TensorList src) {
  const c10::Device device = self[0].device();
  if (!device.is_privateuseone() || self.size() != src.size()) {
    return false;
  }
  for (size_t i = 0; i < self.size(); ++i) {
    if (self[i].device() != device || src[i].device() != device ||
        self[i].sizes() != src[i].sizes() || self[i].is_same(src[i])) {
      return false;
    }
  }
  return true;
}

// Each copy only moves bytes, from one storage to another (the CPU's kernel refuses an overlap).
bool moves_bytes(at::TensorList self, at::TensorList src) {
  for (size_t i = 0; i < self.size(); ++i) {
    if (self[i].is_alias_of(src[i]) || !has_plain_bytes(self[i]) || !has_plain_bytes(src[i]) ||
        !same_bytes(self[i], src[i])) {
      return false;
    }
  }
  return true;
}

void copy_now(at::TensorList self, at::TensorList src) {
  if (moves_bytes(self, src)) {
    for (size_t i = 0; i < self.size(); ++i) {
      if (src[i].nbytes() > 0) {
        orKernelMemcpy(kernel_data(self[i]), kernel_data(src[i]), src[i].nbytes());
      }
    }
    return;
  }
  CpuCall call(self[0].device().index());
  const AliasList to(call, self, /*written=*/true);
  const AliasList from(call, src, /*written=*/false);
  at::_ops::_foreach_copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), to.get(),
                                       from.get(), /*non_blocking=*/false);
}

class Task final : public DeferredTask {
 public:
  Task(at::TensorList self, at::TensorList src) {
    Snapshots snapshots;
    for (size_t i = 0; i < self.size(); ++i) {
      self_.push_back(snapshots.take(self[i]));
      src_.push_back(snapshots.take(src[i]));
    }
  }
  void run() override { copy_now(self_, src_); }

 private:
  std::vector<at::Tensor> self_;
  std::vector<at::Tensor> src_;
};

void sanitize(const OpenregStream& stream, at::TensorList self, at::TensorList src) {
  if (!sanitizer::enabled()) [[likely]] {
    return;
  }
  std::vector<sanitizer::Use> uses;
  for (size_t i = 0; i < self.size(); ++i) {
    uses.push_back({&src[i], false});
    uses.push_back({&self[i], true});
  }
  sanitizer::operation(kForeachCopyName, stream, uses);
}

void foreach_copy_(at::TensorList self, at::TensorList src, bool non_blocking) {
  TORCH_CHECK(!self.empty() && self.size() == src.size(),
              "Tensor lists must have the same number of tensors, at least one, got ", self.size(),
              " and ", src.size());
  if (!on_one_device(self, src)) {
    for (size_t i = 0; i < self.size(); ++i) {
      at::Tensor to = self[i];
      to.copy_(src[i], non_blocking);
    }
    return;
  }
  const OpenregStream stream = current_stream(self[0].device().index());
  sanitize(stream, self, src);
  if (TryStreamHold hold(stream, kForeachCopyName); hold) {
    copy_now(self, src);
    return;
  }
  enqueue(kForeachCopyName, stream, std::make_unique<Task>(self, src));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_foreach_copy_", foreach_copy_); }

}  // namespace torch_openreg
