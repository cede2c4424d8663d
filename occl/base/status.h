// The value every fallible function inside OCCL returns: a code of the C API and a sentence that
// says what was expected, what was found, on which rank and in which operation.
#ifndef OCCL_BASE_STATUS_H_
#define OCCL_BASE_STATUS_H_

#include <string>
#include <utility>

#include "occl/api/occl.h"

namespace occl {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(occlResult_t code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == occlSuccess; }
  occlResult_t code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  occlResult_t code_ = occlSuccess;
  std::string message_;
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
