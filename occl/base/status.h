// The value every fallible function inside OCCL returns: a code of the C API and a sentence that
// says what was expected, what was found, on which rank and in which operation.
#ifndef OCCL_BASE_STATUS_H_
#define OCCL_BASE_STATUS_H_

#include <memory>
#include <string>
#include <utility>

#include "occl/api/occl.h"

namespace occl {

// A success is one word of zero and costs nothing; all of a failure lives on the heap.
class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  // `code` is not occlSuccess.
  Status(occlResult_t code, std::string message)
      : failure_(std::make_unique<Failure>(Failure{code, std::move(message)})) {}
  Status(const Status& other)
      : failure_(other.ok() ? nullptr : std::make_unique<Failure>(*other.failure_)) {}
  Status(Status&& other) = default;
  Status& operator=(Status other) noexcept {
    failure_ = std::move(other.failure_);
    return *this;
  }

  bool ok() const { return failure_ == nullptr; }
  occlResult_t code() const { return ok() ? occlSuccess : failure_->code; }
  const std::string& message() const { return ok() ? NoMessage() : failure_->message; }

 private:
  struct Failure {
    occlResult_t code;
    std::string message;
  };
  static const std::string& NoMessage();

  std::unique_ptr<Failure> failure_;
};

// Builds a Status from a printf format. The message is cut at 1000 bytes, which is more than the
// longest message of this library with the longest name.
Status Error(occlResult_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
// occlSystemError: "<what>: <strerror(errno_value)>".
Status SystemError(int errno_value, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace occl

#define OCCL_RETURN_IF_ERROR(expression)       \
  do {                                         \
    ::occl::Status status_here = (expression); \
    if (!status_here.ok()) return status_here; \
  } while (false)

#endif  // OCCL_BASE_STATUS_H_
