// What operators tell the sanitizer.
#ifndef PYTHON_CSRC_SANITIZER_OPERATIONS_H_
#define PYTHON_CSRC_SANITIZER_OPERATIONS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>

#include "python/csrc/sanitizer/switch.h"

namespace torch_openreg::sanitizer {

namespace detail {
void operator_begins(const char* name, const c10::Stream& stream);
void operator_uses(const at::Tensor& tensor, bool writes);
void operator_makes(const at::Tensor& tensor);
void operator_failed() noexcept;
}  // namespace detail

// A tensor that an operation uses. The tensor has to live as long as this object.
struct Use {
  const at::Tensor* tensor;
  bool writes;
};

// Work with `uses` is about to be issued on `stream`. `name` is static storage. Call it only if
// enabled(). Of the host's tensors the pinned ones count.
void operation(const char* name, const c10::Stream& stream, c10::ArrayRef<Use> uses);

// The same in steps, for operators that get to know their tensors one by one. First: the operator
// `name` ("aten::add") begins on `stream`, and becomes the thread's current one.
inline void operator_begins(const char* name, const c10::Stream& stream) {
  if (enabled()) [[unlikely]] {
    detail::operator_begins(name, stream);
  }
}
// Then, before it runs: it uses `tensor`.
inline void operator_uses(const at::Tensor& tensor, bool writes) {
  if (enabled()) [[unlikely]] {
    detail::operator_uses(tensor, writes);
  }
}

// Afterwards: it has made `tensor`, or resized it.
inline void operator_makes(const at::Tensor& tensor) {
  if (enabled()) [[unlikely]] {
    detail::operator_makes(tensor);
  }
}

// Or: it has thrown, and has used nothing.
inline void operator_failed() noexcept {
  if (enabled()) [[unlikely]] {
    detail::operator_failed();
  }
}

// In its scope a foreach operator of this thread writes to its first `count` tensors only: its C++
// type tells which tensors it has, not which of them it writes to.
class WrittenFirst {
 public:
  explicit WrittenFirst(std::size_t count);
  ~WrittenFirst();
  WrittenFirst(const WrittenFirst&) = delete;
  WrittenFirst& operator=(const WrittenFirst&) = delete;
};

// In its scope an operator of this thread also writes to these tensors, which its schema does not
// say (batch norm's running statistics). They have to live as long as this object; undefined ones
// count for nothing.
class AlsoWritten {
 public:
  AlsoWritten(const at::Tensor& one, const at::Tensor& other);
  ~AlsoWritten();
  AlsoWritten(const AlsoWritten&) = delete;
  AlsoWritten& operator=(const AlsoWritten&) = delete;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_OPERATIONS_H_
