// What a function of the runtime returns: success, or one of the public error codes with a message
// that says what was expected and what came. The C layer (capi_error.h) turns it into the enum and
// the thread's last error; nothing else knows both.
#ifndef OPENREG_RUNTIME_STATUS_H_
#define OPENREG_RUNTIME_STATUS_H_

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "openreg/api/openreg.h"

namespace openreg {

// printf into a string. The attribute lets the compiler check the arguments.
[[gnu::format(printf, 1, 2)]] inline std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  char buffer[1024];
  int written = std::vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  if (written < 0) return format;
  return std::string(buffer, static_cast<size_t>(written) < sizeof buffer
                                 ? static_cast<size_t>(written)
                                 : sizeof buffer - 1);
}

// A success is one word of zero and costs nothing; the message lives on the heap.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(orError_t code, std::string message)
      : code_(code), message_(std::make_unique<std::string>(std::move(message))) {}
  // An answer rather than a failure: no message.
  static Status NotReady() {
    Status status;
    status.code_ = orErrorNotReady;
    return status;
  }

  bool ok() const { return code_ == orSuccess; }
  orError_t code() const { return code_; }
  const char* message() const { return message_ ? message_->c_str() : ""; }

 private:
  orError_t code_ = orSuccess;
  std::unique_ptr<std::string> message_;
};

inline Status InvalidValue(std::string message) {
  return Status(orErrorInvalidValue, std::move(message));
}

// A system call failed: names the call and errno's text.
Status SystemError(const char* call, int error);

}  // namespace openreg

// Leaves the function with the status of `expression` unless it is a success.
#define OPENREG_RETURN_IF_ERROR(expression)          \
  do {                                               \
    ::openreg::Status openreg_status = (expression); \
    if (!openreg_status.ok()) return openreg_status; \
  } while (false)

#endif  // OPENREG_RUNTIME_STATUS_H_
