// One operator of openreg computed by the CPU's kernel, without copying.
#ifndef PYTHON_CSRC_ATEN_CPU_CALL_H_
#define PYTHON_CSRC_ATEN_CPU_CALL_H_

#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "python/csrc/aten/alias.h"
#include "python/csrc/aten/allocation_switch.h"
#include "python/csrc/aten/pointer_table.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// The device on which an operator runs, found from its arguments, and what it may not mix.
class DeviceFinder {
 public:
  explicit DeviceFinder(const char* op) : op_(op) {}

  // A tensor argument. Throws if tensors of two openreg devices meet.
  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const c10::Device device = tensor.device();
    if (device.type() == c10::DeviceType::PrivateUse1) {
      if (device_ < 0) {
        device_ = device.index();
      } else if (device_ != device.index()) [[unlikely]] {
        throw_two_devices(c10::Device(c10::DeviceType::PrivateUse1, device_), device);
      }
    } else if (tensor.dim() > 0 || device.type() != c10::DeviceType::CPU) {
      other_ = device;
    }
  }
  // A `device=` argument: the device of the result where no tensor says otherwise.
  void see(const std::optional<c10::Device>& device);
  // A generator, which draws for tensors of its own kind of device only: the operator may have come
  // here for no other reason.
  void see(const std::optional<at::Generator>& generator) {
    draws_ = draws_ || (generator.has_value() && generator->defined() &&
                        generator->device().type() == c10::DeviceType::PrivateUse1);
  }
  // A tensor that the operator writes to: has to be on the device, also if it has no dimensions.
  void see_written(const at::Tensor& tensor) {
    see(tensor);
    if (tensor.defined() && tensor.device().type() != c10::DeviceType::PrivateUse1) {
      other_ = tensor.device();
    }
  }
  // Host tensors with dimensions are right for this operator (indices, lengths, ...).
  void allow_host_tensors() { host_tensors_allowed_ = true; }

  // The device's index: that of the tensors, else of `device=`, else the current one. Throws if a
  // tensor of another kind of device, that is not a CPU scalar, was seen beside one of openreg, or
  // beside a generator of openreg only.
  c10::DeviceIndex device() const;

 private:
  [[noreturn]] void throw_two_devices(c10::Device one, c10::Device other) const;

  const char* op_;
  c10::DeviceIndex device_ = -1;    // of the tensors
  c10::DeviceIndex argument_ = -1;  // of device=
  std::optional<c10::Device> other_;
  bool host_tensors_allowed_ = false;
  bool draws_ = false;  // from a generator of openreg
};

// The scope of one call. Holds the device's current stream (waits until it is empty), sends the
// CPU's allocations to the device and keeps autograd and version counting outside, which the
// caller has seen to.
//
//   CpuCall call("aten::add", device);
//   const at::Tensor& a = call.alias(self);     // self as the CPU sees it
//   at::Tensor out = kernel(a, ...);
//   call.finish();                              // resizes of aliases reach the originals
//   return call.wrap(std::move(out));
//
// The originals have to outlive the object. The references that alias returns are good until the
// next alias of the same call: take them all first (index) where there are several.
class CpuCall {
 public:
  CpuCall(const char* op, c10::DeviceIndex device, bool allocate_on_device = true);
  // As above, but does not wait: false in a boolean context, and of no use, where the stream is not
  // empty.
  CpuCall(std::try_to_lock_t try_to_lock, const char* op, c10::DeviceIndex device);
  // For a caller that holds the stream already, or runs on its worker, and whose results exist:
  // what the kernel allocates is temporary and comes from the host.
  explicit CpuCall(c10::DeviceIndex device);
  ~CpuCall();
  CpuCall(const CpuCall&) = delete;
  CpuCall& operator=(const CpuCall&) = delete;

  explicit operator bool() const { return !attempt_.has_value() || static_cast<bool>(*attempt_); }

  // The alias of `original`, as the index to give to at(); a tensor of the host is its own alias.
  // `written`: the kernel may resize or restride it, and may return it.
  size_t add(const at::Tensor& original, bool written) {
    return add(original, written, /*listed=*/false);
  }
  const at::Tensor& at(size_t index) const { return entries_[index].view; }
  // The same for the tensors of a list, which no kernel resizes or gives another storage.
  size_t add_listed(const at::Tensor& original, bool written) {
    return add(original, written, /*listed=*/true);
  }
  // Announces that `count` more tensors will be added.
  void reserve(size_t count);

  // The CPU generator that draws for `given` (or the device's default generator), whose offset
  // moves on.
  at::Generator generator(const std::optional<at::Generator>& given);

  // Carries what the kernel did to the aliases' sizes and storages over to the originals.
  void finish();

  // A result as a tensor of the device: the original where it is an alias, a view of an original's
  // storage where it is a view of an alias, and otherwise a new tensor, moved without copying.
  // Call it after finish().
  at::Tensor wrap(at::Tensor&& result);
  // The original of a result that has to be one of the arguments.
  const at::Tensor& original(const at::Tensor& result) const;

 private:
  struct Entry {
    at::Tensor view;             // the alias, or the host's tensor itself
    const at::Tensor* original;  // the caller's
    Alias* alias;                // null for a tensor of the host
    bool written;
    bool listed;  // finish() need not look at it
  };

  size_t add(const at::Tensor& original, bool written, bool listed);
  // The first entry whose original has this storage, and with one, the entry whose original is this
  // tensor. -1 if there is none: the entry that is added next has to be it.
  std::ptrdiff_t find_sharing(const c10::StorageImpl* storage);
  std::ptrdiff_t find_again(const c10::TensorImpl* tensor, std::ptrdiff_t sharing);
  bool searches_table() const;
  void note(std::ptrdiff_t index);
  const Entry* find_storage(const c10::StorageImpl* storage) const;
  const Entry* find_tensor(const c10::TensorImpl* tensor) const;
  void write_back(const Entry& entry);
  c10::Storage device_storage(const c10::Storage& storage);
  void move_storage(c10::StorageImpl* storage);

  c10::Device device_;
  std::optional<StreamHold> hold_;
  std::optional<TryStreamHold> attempt_;
  AllocationSwitch switch_;
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::SmallVector<Entry, 6> entries_;
  // Where there are many: from a storage to the first entry with it, and, for the later ones, from
  // the original tensor to its entry.
  PointerTable first_of_;
};

// A list of tensors as the CPU's kernel gets it. The aliases in it are the call's own, uncounted: a
// list of hundreds pays for no reference counts. Must not outlive the call.
class AliasList {
 public:
  template <typename List>
  AliasList(CpuCall& call, const List& originals, bool written) {
    call.reserve(originals.size());
    list_.tensors.reserve(originals.size());
    for (const at::Tensor& original : originals) {
      const at::Tensor& alias = call.at(call.add_listed(original, written));
      list_.tensors.push_back(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(alias));
    }
  }

  at::TensorList get() const { return list_.tensors; }

 private:
  struct Borrowed {
    Borrowed() = default;
    ~Borrowed() {
      for (at::Tensor& tensor : tensors) {
        c10::MaybeOwnedTraits<at::Tensor>::destroyBorrow(tensor);
      }
    }
    Borrowed(Borrowed&& other) noexcept : tensors(std::exchange(other.tensors, {})) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    Borrowed& operator=(Borrowed&&) = delete;

    std::vector<at::Tensor> tensors;
  };

  Borrowed list_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_CPU_CALL_H_
