// Copies that only move bytes: what a device's copy engine does, and how traces show it.
#ifndef PYTHON_CSRC_ATEN_COPY_BYTES_H_
#define PYTHON_CSRC_ATEN_COPY_BYTES_H_

#include <ATen/core/Tensor.h>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Whether the device reads and writes this memory of the host without the host's help.
bool is_pinned(const at::Tensor& tensor);

// `tensor` (of openreg) is a tensor in memory, with bytes one after the other, not a lazy copy, and
// it is what they say: neither lazily conjugated, negated nor zero.
bool has_plain_bytes(const at::Tensor& tensor);
// The bytes of both lie alike and mean the same.
bool same_bytes(const at::Tensor& self, const at::Tensor& src);
// Where a kernel finds the first element of an openreg tensor.
void* kernel_data(const at::Tensor& tensor);

// Between openreg and the CPU: queues the copy on `stream` and returns before it is done, if `host`
// (one of the two) is pinned, the copy is long enough to be worth another thread's while, and the
// bytes of both lie alike. The pinned block is not reused before the copy has ended; the device's
// is its stream's, as always. False: nothing was done.
bool copy_bytes_async(const at::Tensor& self, const at::Tensor& src, const at::Tensor& host,
                      const OpenregStream& stream);

// Within a hold or task, between tensors of openreg: copies a large range as the runtime does,
// which is faster than the CPU's kernel. False: nothing was done (few bytes, another type or
// layout, one storage).
bool copy_large_bytes(const at::Tensor& self, const at::Tensor& src);

// Within a hold or task of `stream` that copies src to self: a trace shows a transfer of so many
// bytes where CUDA's would (not where values are converted on the device).
void report_copy(const at::Tensor& self, const at::Tensor& src, const OpenregStream& stream);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_COPY_BYTES_H_
