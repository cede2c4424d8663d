// What the host does with pinned memory that streams use.
#ifndef PYTHON_CSRC_SANITIZER_HOST_ACCESS_H_
#define PYTHON_CSRC_SANITIZER_HOST_ACCESS_H_

#include <ATen/core/Tensor.h>

namespace torch_openreg::sanitizer {

// From now on the host's own operators are watched, through torch's RecordFunction. Called when a
// stream is first given pinned memory to work on; not before, because it costs every operator of
// the process.
void watch_host();
void unwatch_host();

// The host reads `tensor` by other means than an operator (Tensor.numpy()). Throws what it finds.
void host_reads(const char* name, const at::Tensor& tensor);

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_HOST_ACCESS_H_
