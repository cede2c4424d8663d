// A CPU tensor that is the same memory as an openreg tensor: what a CPU kernel is given.
#ifndef PYTHON_CSRC_ATEN_ALIAS_H_
#define PYTHON_CSRC_ATEN_ALIAS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace torch_openreg {

// Lazily conjugated, negated and zero: what a tensor may be beside its memory.
inline constexpr c10::DispatchKeySet kLazyKeys({c10::DispatchKey::Conjugate,
                                                c10::DispatchKey::Negative,
                                                c10::DispatchKey::ZeroTensor});

// The CPU's view of one openreg tensor for the length of one call. It does not own the memory: the
// original has to outlive the call. Lazily conjugated, negated and zero tensors stay so, since the
// CPU's kernels know them too. Objects are reused (AliasPool), because making a tensor costs as
// much as a small operator.
class Alias final : public c10::TensorImpl {
 public:
  Alias();

  // Becomes the CPU's view of `source`, with a storage of its own that starts at the kernel
  // address of the original's, or with `shared`, the storage of another alias of the same one.
  void assign(const c10::TensorImpl& source, const Alias* shared);

  // The alias's storage has another block than the one it was made for: a kernel has resized it.
  bool storage_was_resized() const;
  // Another storage was set (set_), or none of the above.
  bool has_other_storage() const { return storage_.unsafeGetStorageImpl() != expected_; }
  // A kernel has changed sizes, strides or offset from the original's.
  bool geometry_differs(const c10::TensorImpl& source) const;

  c10::StorageImpl* storage_impl() const { return storage_.unsafeGetStorageImpl(); }
  // It has its own storage, to which nobody else refers, and Python has never seen it.
  bool is_reusable() const;

 private:
  // What it was last is what `source` is, but for the memory.
  bool has_metadata_of(const c10::TensorImpl& source) const;

  c10::intrusive_ptr<c10::StorageImpl> own_;  // constant after construction
  c10::StorageImpl* expected_ = nullptr;      // own_, or the shared storage
  void* address_ = nullptr;
  size_t nbytes_ = 0;
};

// Makes `tensor`, which a CPU kernel created and nobody else has seen, a tensor of `device`. Its
// storage has to be the device's already.
void move_to_device(c10::TensorImpl& tensor, c10::Device device);

// The thread's stock of aliases.
class AliasPool {
 public:
  // An alias that nobody uses: a new one if there is none.
  static c10::intrusive_ptr<Alias> take();
  // Keeps it for the next call, or drops it where somebody still refers to it.
  static void give_back(c10::intrusive_ptr<Alias>&& alias);
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_ALIAS_H_
