// Pinned host memory for torch.
#ifndef PYTHON_CSRC_RUNTIME_HOST_MEMORY_H_
#define PYTHON_CSRC_RUNTIME_HOST_MEMORY_H_

#include <ATen/core/CachingHostAllocator.h>

namespace torch_openreg {

// The caching allocator of pinned memory. A block that an asynchronous copy uses (record_event) is
// reused after the copy. Its first allocation brings the device to life.
at::HostAllocator* host_allocator();

// True if `ptr` is pinned memory of this process. Does not bring the device to life.
bool is_pinned_ptr(const void* ptr);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_HOST_MEMORY_H_
