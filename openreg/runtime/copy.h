// Copies and fills: what the pointers are, who does the work and when.
#ifndef OPENREG_RUNTIME_COPY_H_
#define OPENREG_RUNTIME_COPY_H_

#include <cstddef>

#include "openreg/api/openreg.h"
#include "openreg/runtime/runtime.h"
#include "openreg/runtime/status.h"

namespace openreg {

// A copy whose pointers were checked: the addresses are accessible.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t size = 0;
  orMemcpyKind kind = orMemcpyDefault;
  bool to_pageable = false;
  bool from_pageable = false;
};

// Errors: orErrorInvalidValue, orErrorInvalidDevicePointer.
Status CheckCopy(Runtime& runtime, void* to, const void* from, size_t size, orMemcpyKind kind,
                 Copy* copy);
// In the stream's turn, on the calling thread; returns when it is done.
Status CopyNow(const Copy& copy, Stream* stream);
// As orMemcpyAsync.
Status CopyInOrder(const Copy& copy, Stream* stream);

// Errors: orErrorInvalidDevicePointer.
Status CheckFill(Runtime& runtime, void* ptr, size_t size, void** kernel);
Status FillNow(void* kernel, int value, size_t size, Stream* stream);
Status FillInOrder(void* kernel, int value, size_t size, Stream* stream);

}  // namespace openreg
#endif  // OPENREG_RUNTIME_COPY_H_
