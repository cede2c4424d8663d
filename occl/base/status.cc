#include "occl/base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace occl {
namespace {

constexpr size_t kMaxMessage_bytes = 1000;

std::string Format(const char* format, va_list arguments) {
  char text[kMaxMessage_bytes];
  std::vsnprintf(text, sizeof(text), format, arguments);
  return text;
}

}  // namespace

const std::string& Status::NoMessage() {
  static const std::string none;
  return none;
}

Status Error(occlResult_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = Format(format, arguments);
  va_end(arguments);
  return Status(code, std::move(message));
}

Status SystemError(int errno_value, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = Format(format, arguments);
  va_end(arguments);
  char buffer[128];
  // The GNU variant: it may return a static string instead of filling the buffer.
  message += ": ";
  message += strerror_r(errno_value, buffer, sizeof(buffer));
  return Status(occlSystemError, std::move(message));
}

}  // namespace occl
