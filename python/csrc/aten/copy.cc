#include "python/csrc/aten/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include <utility>

#include "python/csrc/aten/copy_bytes.h"
#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/snapshot.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/sanitizer/operations.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

constexpr const char* kCopyName = "aten::copy_";

bool on_device(const at::Tensor& tensor) { return tensor.device().is_privateuseone(); }

// The copy itself, by a thread that holds the streams or works for them; on `stream` it is
// reported.
void copy_now(const OpenregStream& stream, const at::Tensor& self, const at::Tensor& src) {
  report_copy(self, src, stream);
  if (on_device(self) && on_device(src) && copy_large_bytes(self, src)) {
    return;
  }
  CpuCall call((on_device(self) ? self : src).device().index());
  const size_t to = call.add(self, /*written=*/false);
  const size_t from = call.add(src, /*written=*/false);
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU),
                              const_cast<at::Tensor&>(call.at(to)), call.at(from),
                              /*non_blocking=*/false);
}

class CopyTask final : public DeferredTask {
 public:
  CopyTask(const OpenregStream& stream, const at::Tensor& self, const at::Tensor& src)
      : stream_(stream), self_(snapshots_.take(self)), src_(snapshots_.take(src)) {}
  void run() override { copy_now(stream_, self_, src_); }

 private:
  OpenregStream stream_;
  Snapshots snapshots_;
  at::Tensor self_;
  at::Tensor src_;
};

void queue_copy(const OpenregStream& stream, const at::Tensor& self, const at::Tensor& src) {
  enqueue(kCopyName, stream, std::make_unique<CopyTask>(stream, self, src));
}

// Memory of the host is in use after the call only where it is pinned and the copy non-blocking;
// and only there the host gets its result without having waited.
void sanitize(const OpenregStream& stream, const at::Tensor& self, const at::Tensor& src,
              bool non_blocking) {
  if (!sanitizer::enabled()) [[likely]] {
    return;
  }
  c10::SmallVector<sanitizer::Use, 2> uses;
  const auto use = [&](const at::Tensor& tensor, bool writes) {
    if (on_device(tensor) || (non_blocking && is_pinned(tensor))) {
      uses.push_back({&tensor, writes});
    }
  };
  use(src, false);
  use(self, true);
  sanitizer::operation(kCopyName, stream, uses);
  const bool crosses = on_device(self) != on_device(src);
  if (crosses && (!non_blocking || (!on_device(self) && uses.size() < 2))) {
    sanitizer::host_saw_stream(stream);
  }
}

// An event that lives for the length of a hand-over between two streams.
class Handover {
 public:
  Handover() { OR_CHECK(orEventCreateWithFlags(&event_, orEventDisableTiming)); }
  ~Handover() { OR_WARN(orEventDestroy(event_)); }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // What is queued on `second` from now on runs after what is queued on `first` now.
  void order(const OpenregStream& first, const OpenregStream& second) {
    OR_CHECK(orEventRecord(event_, first.handle));
    OR_CHECK(orStreamWaitEvent(second.handle, event_));
  }

 private:
  orEvent_t event_ = nullptr;
};

class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) {
    OR_CHECK(orGetDevice(&previous_));
    OR_CHECK(orSetDevice(device));
  }
  ~DeviceScope() { OR_WARN(orSetDevice(previous_)); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
};

// As CUDA's: on the source's current stream, in order with the destination's.
void copy_between_devices(const at::Tensor& self, const at::Tensor& src) {
  const OpenregStream from = current_stream(src.device().index());
  const OpenregStream to = current_stream(self.device().index());
  if (sanitizer::enabled()) [[unlikely]] {
    sanitizer::stream_follows(from, to);
    sanitizer::operation(kCopyName, from, {{&src, false}, {&self, true}});
    sanitizer::stream_follows(to, from);
  }
  if (TryStreamHold hold_from(from, kCopyName); hold_from) {
    if (TryStreamHold hold_to(to, nullptr); hold_to) {
      copy_now(from, self, src);
      return;
    }
  }
  {
    const DeviceScope scope(to.device);
    Handover().order(to, from);
  }
  queue_copy(from, self, src);
  const DeviceScope scope(from.device);
  Handover().order(from, to);
}

void copy_to_host(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const OpenregStream stream = current_stream(src.device().index());
  sanitize(stream, self, src, non_blocking);
  if (non_blocking) {
    if (copy_bytes_async(self, src, self, stream)) {
      return;
    }
    if (TryStreamHold hold(stream, kCopyName); hold) {
      copy_now(stream, self, src);
      return;
    }
    if (is_pinned(self)) {
      queue_copy(stream, self, src);
      return;
    }
  }
  const StreamHold hold(stream, kCopyName);
  copy_now(stream, self, src);
}

void copy_to_device(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const OpenregStream stream = current_stream(self.device().index());
  sanitize(stream, self, src, non_blocking);
  if (!on_device(src) && !non_blocking) {
    // As CUDA's: what it made may be used on every stream then, without a wait.
    const StreamHold hold(stream, kCopyName);
    copy_now(stream, self, src);
    return;
  }
  if (src.is_cpu() && copy_bytes_async(self, src, src, stream)) {
    return;
  }
  if (TryStreamHold hold(stream, kCopyName); hold) {
    copy_now(stream, self, src);
    return;
  }
  const bool host_may_change = !on_device(src) && !is_pinned(src);
  queue_copy(stream, self,
             host_may_change ? at::_ops::clone::call(src, at::MemoryFormat::Preserve) : src);
}

void check_copy(const at::Tensor& self, const at::Tensor& src) {
  for (const at::Tensor* tensor : {&self, &src}) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        (on_device(*tensor) || tensor->device().is_cpu()) &&
            tensor->unsafeGetTensorImpl()->has_storage(),
        "openreg copies between dense tensors of openreg and of the CPU, not from ", src.device(),
        " (", src.layout(), ") to ", self.device(), " (", self.layout(), ")");
  }
  TORCH_CHECK(!self._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you "
              "want a mutable zero tensor.");
  TORCH_CHECK(at::is_expandable_to(src.sizes(), self.sizes()), "The expanded size of the tensor (",
              self.sizes(), ") must match the existing size (", src.sizes(), ") in copy_.");
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor result = dst;
  copy_(result, self, non_blocking);
  return result;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src) || self.is_meta()) {
    return self;
  }
  check_copy(self, src);
  if (src._is_zerotensor()) {
    return at::_ops::zero_::call(self);
  }
  if (!on_device(self)) {
    copy_to_host(self, src, non_blocking);
  } else if (on_device(src) && self.device() != src.device()) {
    copy_between_devices(self, src);
  } else {
    copy_to_device(self, src, non_blocking);
  }
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace torch_openreg
