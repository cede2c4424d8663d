// What the environment and the machine say: number of devices, memory limit. Read once.
#ifndef OPENREG_RUNTIME_CONFIG_H_
#define OPENREG_RUNTIME_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "openreg/runtime/status.h"

namespace openreg {

inline constexpr int kMaxDevices = 64;

struct Config {
  int device_count = 8;
  uint64_t memory_bytes = 0;  // shared by all devices of the process
};

// The process's configuration; the first call reads it. Works after fork.
Status GetConfig(const Config** config);

// The parts, for tests. `text` is the variable's value, NULL if unset.
Status ParseDeviceCount(const char* text, int* count);
Status ParseMemorySize(const char* text, uint64_t* bytes);

// RAM, or the limit of a memory cgroup (v1 or v2) around this process if that is smaller.
uint64_t SystemMemoryBytes();
// Memory that another process may touch whenever it likes.
struct Promise {
  int pid;
  uint64_t bytes;
};
// What the system could still give without killing: MemAvailable, or what is left in the cgroup,
// less what is promised to other processes there.
uint64_t SystemAvailableBytes(const std::vector<Promise>& promises = {});

// True if Linux charges the pages that the other process touches first to a memory cgroup that this
// one is not in, or if that cannot be seen (pid 0: a process of a pid namespace that is hidden).
bool InOtherMemoryCgroup(int pid);

// CPU cores this process may run on.
int CpuCount();

}  // namespace openreg
#endif  // OPENREG_RUNTIME_CONFIG_H_
