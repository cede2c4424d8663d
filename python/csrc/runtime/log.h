// The extension's log lines: on stderr, in the form of torch's own, and never waiting for a reader
// for long, as LOG() and TORCH_WARN would.
#ifndef PYTHON_CSRC_RUNTIME_LOG_H_
#define PYTHON_CSRC_RUNTIME_LOG_H_

#include <cstdint>
#include <string>

namespace torch_openreg {

enum class Severity : std::uint8_t { kWarning, kError };

// TORCH_CPP_LOG_LEVEL decides whether it is shown. `rank`: the global one, -1 if there is none.
// Thread-safe; also under locks. A line that nobody reads is dropped (common/line_writer.h).
void log_line(Severity severity, std::int64_t rank, const std::string& text) noexcept;

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_LOG_H_
