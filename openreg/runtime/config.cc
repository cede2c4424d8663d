#include "openreg/runtime/config.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace openreg {

Status ParseDeviceCount(const char* text, int* count) {
  if (text == nullptr || *text == '\0') {
    *count = 8;
    return Status();
  }
  char* end = nullptr;
  errno = 0;
  long value = std::strtol(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < 1 || value > kMaxDevices) {
    return Status(orErrorInitializationError,
                  Format("OPENREG_DEVICE_COUNT: expected a number from 1 to %d, got \"%s\"",
                         kMaxDevices, text));
  }
  *count = static_cast<int>(value);
  return Status();
}

Status ParseMemorySize(const char* text, uint64_t* bytes) {
  if (text == nullptr || *text == '\0') {
    *bytes = SystemMemoryBytes();
    return Status();
  }
  char* end = nullptr;
  errno = 0;
  unsigned long long value = std::strtoull(text, &end, 10);
  bool valid = errno == 0 && end != text && text[0] != '-' && value > 0;
  int shift = 0;
  if (valid && *end != '\0') {
    const char* suffixes = "KMGT";
    const char* at = strchr(suffixes, *end & ~0x20);
    valid = at != nullptr && *at != '\0' && end[1] == '\0';
    if (valid) shift = 10 * static_cast<int>(at - suffixes + 1);
  }
  if (!valid || value > (UINT64_C(1) << 46) >> shift) {
    return Status(orErrorInitializationError,
                  Format("OPENREG_DEVICE_MEMORY: expected bytes with an optional suffix K, M, G or "
                         "T and at most 64T, got \"%s\"",
                         text));
  }
  *bytes = static_cast<uint64_t>(value) << shift;
  return Status();
}

namespace {

// The lines of a file, none if it cannot be read. By stdio: where no descriptor is left, UBSan,
// which looks at objects through a pipe, takes every stream of C++ for no stream.
std::vector<std::string> ReadLines(const std::string& path) {
  std::vector<std::string> lines;
  FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return lines;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, file) >= 0) {
    line[strcspn(line, "\n")] = '\0';
    lines.emplace_back(line);
  }
  std::free(line);
  std::fclose(file);
  return lines;
}

// The first number in a file, or `fallback` ("max" in a cgroup file is no number).
uint64_t ReadNumber(const std::string& path, uint64_t fallback) {
  const std::vector<std::string> lines = ReadLines(path);
  uint64_t value = 0;
  return !lines.empty() && std::sscanf(lines[0].c_str(), "%" SCNu64, &value) == 1 ? value
                                                                                  : fallback;
}

// The number after `key` in a file of "key value" lines.
uint64_t ReadField(const std::string& path, const std::string& key, uint64_t fallback) {
  for (const std::string& line : ReadLines(path)) {
    uint64_t value = 0;
    if (line.starts_with(key + " ") &&
        std::sscanf(line.c_str() + key.size(), "%" SCNu64, &value) == 1) {
      return value;
    }
  }
  return fallback;
}

struct CgroupFolder {
  std::string path;
  bool v1;
};

// The folders of the memory cgroups around a process, innermost first. A container often sees
// its own cgroup as the root, so folders that do not exist are left to ReadNumber's fallback.
std::vector<CgroupFolder> CgroupFolders(const std::string& pid = "self") {
  std::vector<CgroupFolder> folders;
  for (const std::string& line : ReadLines("/proc/" + pid + "/cgroup")) {
    size_t first = line.find(':');
    size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",memory,") == std::string::npos) continue;
    std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    while (true) {
      folders.push_back({root + (path == "/" ? "" : path), !v2});
      size_t slash = path.rfind('/');
      if (slash == std::string::npos || path.empty() || path == "/") break;
      path.resize(slash);
    }
  }
  return folders;
}

uint64_t CgroupLimit(const CgroupFolder& folder) {
  return ReadNumber(folder.path + (folder.v1 ? "/memory.limit_in_bytes" : "/memory.max"),
                    UINT64_MAX);
}

// Takes from *available what is promised to the processes that `counts` says yes to.
template <typename F>
void Subtract(const std::vector<Promise>& promises, uint64_t* available, F counts) {
  for (size_t i = 0; i < promises.size(); ++i) {
    if (counts(i)) *available -= std::min(*available, promises[i].bytes);
  }
}

}  // namespace

uint64_t SystemMemoryBytes() {
  uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const CgroupFolder& folder : CgroupFolders()) bytes = std::min(bytes, CgroupLimit(folder));
  return bytes;
}

uint64_t SystemAvailableBytes(const std::vector<Promise>& promises) {
  uint64_t available = ReadField("/proc/meminfo", "MemAvailable:", UINT64_MAX >> 10) << 10;
  Subtract(promises, &available, [](size_t) { return true; });
  std::vector<std::vector<CgroupFolder>> around;  // the process of each promise
  for (const Promise& promise : promises) {
    around.push_back(CgroupFolders(std::to_string(promise.pid)));
  }
  for (const CgroupFolder& folder : CgroupFolders()) {
    uint64_t limit = CgroupLimit(folder);
    if (limit == UINT64_MAX) continue;
    uint64_t used =
        ReadNumber(folder.path + (folder.v1 ? "/memory.usage_in_bytes" : "/memory.current"), 0);
    // Clean page cache is counted as used but goes first when memory is needed.
    used -= std::min(used, ReadField(folder.path + "/memory.stat",
                                     folder.v1 ? "total_inactive_file" : "inactive_file", 0));
    uint64_t left = limit - std::min(limit, used);
    Subtract(promises, &left, [&](size_t i) {
      return std::any_of(around[i].begin(), around[i].end(),
                         [&](const CgroupFolder& other) { return other.path == folder.path; });
    });
    available = std::min(available, left);
  }
  return available;
}

bool InOtherMemoryCgroup(int pid) {
  const auto paths = [](const std::string& process) {
    std::vector<std::string> paths;
    for (const CgroupFolder& folder : CgroupFolders(process)) paths.push_back(folder.path);
    return paths;
  };
  return pid <= 0 || paths(std::to_string(pid)) != paths("self");
}

int CpuCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

Status GetConfig(const Config** config) {
  struct Loaded {
    Config config;
    Status status;
  };
  // Leaked on purpose: usable until the very end of the process.
  static Loaded* loaded = [] {
    auto* fresh = new Loaded;
    fresh->status = ParseDeviceCount(getenv("OPENREG_DEVICE_COUNT"), &fresh->config.device_count);
    if (fresh->status.ok()) {
      fresh->status = ParseMemorySize(getenv("OPENREG_DEVICE_MEMORY"), &fresh->config.memory_bytes);
    }
    return fresh;
  }();
  *config = &loaded->config;
  return loaded->status.ok() ? Status() : Status(loaded->status.code(), loaded->status.message());
}

}  // namespace openreg
