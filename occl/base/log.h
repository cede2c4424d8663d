// Logging as NCCL's users know it: OCCL_DEBUG, OCCL_DEBUG_SUBSYS, OCCL_DEBUG_FILE (see occl.h).
#ifndef OCCL_BASE_LOG_H_
#define OCCL_BASE_LOG_H_

namespace occl {

enum class LogLevel { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };
enum LogSubsystem : unsigned {
  kLogInit = 1u << 0,
  kLogColl = 1u << 1,
  kLogP2p = 1u << 2,
  kLogShm = 1u << 3,
  kLogEnv = 1u << 4,
  kLogAll = ~0u
};

// In the place of OCCL_DEBUG, from now on; false: `name` is no level.
bool SetLogLevel(const char* name);
// The library's version, once a process, where OCCL_DEBUG asks for it.
void LogVersion();
// As getenv; tells the ENV subsystem what it found.
const char* ReadEnvironment(const char* name);

// Cheap: two loads after the first call.
bool LogEnabled(LogLevel level, unsigned subsystem);
// One line, written with one system call: "host:pid:tid OCCL LEVEL text". Where nobody reads it, it
// is dropped after a short wait (common/line_writer.h).
void Log(LogLevel level, unsigned subsystem, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace occl

#define OCCL_LOG(level, subsystem, ...)                             \
  do {                                                              \
    if (::occl::LogEnabled(::occl::LogLevel::level, subsystem)) {   \
      ::occl::Log(::occl::LogLevel::level, subsystem, __VA_ARGS__); \
    }                                                               \
  } while (false)

#endif  // OCCL_BASE_LOG_H_
