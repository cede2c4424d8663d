// Tensors as they are when work is queued, for the work that runs later.
#ifndef PYTHON_CSRC_ATEN_SNAPSHOT_H_
#define PYTHON_CSRC_ATEN_SNAPSHOT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <utility>

namespace torch_openreg {

// The tensors of one queued operation, taken on the thread that queues it. What happens to a tensor
// afterwards does not reach its snapshot: another `.data` (FSDP gives its flat parameters one
// several times a step), another storage, a resize, another shape. A kernel of a real device has
// got sizes and raw pointers by then as well.
//
// A snapshot keeps the storage alive; with the sanitizer on only its block, so that the storage
// ends where the program drops it. A storage that is resized in the meantime has given its block
// back, to be used again in the order of the stream that queued the work, as on a real device.
class Snapshots {
 public:
  // The snapshot of `tensor`: the same one if it is asked for twice, and with the same storage as
  // those of the tensors that share one. An undefined tensor is its own snapshot. A lazy copy is
  // made first, on the current stream.
  at::Tensor take(const at::Tensor& tensor);

 private:
  c10::Storage storage_of(const c10::TensorImpl& tensor);

  c10::SmallVector<std::pair<const c10::TensorImpl*, at::Tensor>, 4> tensors_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 4> storages_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_SNAPSHOT_H_
