#include "occl/base/log.h"

#include <fcntl.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/descriptors.h"
#include "common/line_writer.h"
#include "occl/api/occl.h"

namespace occl {
namespace {

struct LogConfig {
  std::atomic<LogLevel> level = LogLevel::kWarn;
  unsigned subsystems = kLogInit | kLogEnv;
  int fd = STDERR_FILENO;
  char host[64] = "";
};

struct SubsystemName {
  std::string_view name;
  unsigned bit;
};
constexpr SubsystemName kSubsystems[] = {{"INIT", kLogInit}, {"COLL", kLogColl}, {"P2P", kLogP2p},
                                         {"SHM", kLogShm},   {"ENV", kLogEnv},   {"ALL", kLogAll}};
constexpr const char* kLevels[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};

// False: it names none; *level stays as it is.
bool ParseLevel(const char* text, std::atomic<LogLevel>* level) {
  for (int i = 0; i < 5; ++i) {
    if (strcasecmp(text, kLevels[i]) != 0) continue;
    level->store(static_cast<LogLevel>(i), std::memory_order_relaxed);
    return true;
  }
  return false;
}

// A list of names separated by commas; a leading ^ means "all but these", as NCCL has it.
unsigned ParseSubsystems(std::string_view text) {
  const bool exclude = !text.empty() && text[0] == '^';
  if (exclude) text.remove_prefix(1);
  unsigned mask = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    for (const SubsystemName& subsystem : kSubsystems) {
      const std::string_view name = text.substr(0, comma);
      if (name.size() == subsystem.name.size() &&
          strncasecmp(name.data(), subsystem.name.data(), name.size()) == 0) {
        mask |= subsystem.bit;
      }
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return exclude ? ~mask : mask;
}

// %h and %p in OCCL_DEBUG_FILE.
std::string ExpandPath(std::string_view pattern, const char* host) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      ++i;
      if (pattern[i] == 'h') path += host;
      if (pattern[i] == 'p') path += std::to_string(getpid());
      if (pattern[i] == '%') path += '%';
    } else {
      path += pattern[i];
    }
  }
  return path;
}

void ReadConfig(LogConfig* config) {
  gethostname(config->host, sizeof(config->host) - 1);
  if (const char* level = std::getenv("OCCL_DEBUG")) ParseLevel(level, &config->level);
  if (const char* list = std::getenv("OCCL_DEBUG_SUBSYS")) {
    config->subsystems = ParseSubsystems(list);
  }
  if (const char* pattern = std::getenv("OCCL_DEBUG_FILE")) {
    const std::string path = ExpandPath(pattern, config->host);
    const int fd = descriptors::AboveStandard(
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600));
    if (fd >= 0) config->fd = fd;
  }
}

// Leaked: threads may log while the process exits.
LogConfig& Config() {
  static LogConfig* const config = [] {
    auto* const made = new LogConfig;
    ReadConfig(made);
    return made;
  }();
  return *config;
}

}  // namespace

bool LogEnabled(LogLevel level, unsigned subsystem) {
  const LogConfig& config = Config();
  if (level > config.level.load(std::memory_order_relaxed)) return false;
  return level <= LogLevel::kWarn || (config.subsystems & subsystem) != 0;
}

bool SetLogLevel(const char* name) { return ParseLevel(name, &Config().level); }

void LogVersion() {
  static const bool once = [] {
    // By default only warnings are shown, though the version comes before them in OCCL_DEBUG's
    // order.
    if (std::getenv("OCCL_DEBUG") != nullptr) {
      OCCL_LOG(kVersion, kLogInit, "version %d.%d.%d", OCCL_VERSION_MAJOR, OCCL_VERSION_MINOR,
               OCCL_VERSION_PATCH);
    }
    return true;
  }();
  static_cast<void>(once);
}

const char* ReadEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || value[0] == '\0') return nullptr;
  OCCL_LOG(kInfo, kLogEnv, "%s set by environment to %s", name, value);
  return value;
}

void Log(LogLevel level, unsigned, const char* format, ...) {
  char line[2048];
  const int prefix_bytes = std::snprintf(
      line, sizeof(line), "%s:%d:%ld OCCL %s ", Config().host, static_cast<int>(getpid()),
      static_cast<long>(syscall(SYS_gettid)), kLevels[static_cast<int>(level)]);
  const size_t room_bytes = sizeof(line) - prefix_bytes - 1;
  va_list arguments;
  va_start(arguments, format);
  const int text_bytes = std::vsnprintf(line + prefix_bytes, room_bytes, format, arguments);
  va_end(arguments);
  size_t size_bytes = prefix_bytes + std::min<size_t>(std::max(text_bytes, 0), room_bytes - 1);
  line[size_bytes++] = '\n';
  // A log that cannot be written is worth neither failing nor hanging.
  static constinit line_writer::LineWriter writer("OCCL");
  static_cast<void>(writer.Write(Config().fd, line, size_bytes));
}

}  // namespace occl
