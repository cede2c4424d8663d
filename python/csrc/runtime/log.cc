#include "python/csrc/runtime/log.h"

#include <c10/util/Logging.h>
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <exception>

#include "common/line_writer.h"

namespace torch_openreg {

void log_line(Severity severity, std::int64_t rank, const std::string& text) noexcept {
  static constinit line_writer::LineWriter writer("torch_openreg");
  const bool error = severity == Severity::kError;
  if ((error ? c10::GLOG_ERROR : c10::GLOG_WARNING) < FLAGS_caffe2_log_level) {
    return;
  }
  try {
    std::timespec now{};
    (void)std::timespec_get(&now, TIME_UTC);
    std::tm local{};
    (void)localtime_r(&now.tv_sec, &local);
    char stamp[32] = "";
    (void)std::strftime(stamp, sizeof(stamp), "%m%d %H:%M:%S", &local);
    char micros[24] = "";
    (void)std::snprintf(micros, sizeof(micros), ".%06ld", now.tv_nsec / 1000);
    const std::string line =
        c10::str(rank < 0 ? "" : c10::str("[rank", rank, "]:"), "[", error ? "E" : "W", stamp,
                 micros, " torch_openreg] ", text, "\n");
    (void)writer.Write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::exception&) {
    // No memory for a line of text: what it tells of counts.
  }
}

}  // namespace torch_openreg
