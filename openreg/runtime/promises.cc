#include "openreg/runtime/promises.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr char kName[] = "openreg-reserved";
// As /proc shows files without a name: those of the arenas have the device's number there.
constexpr char kShownName[] = "/memfd:openreg-reserved";
constexpr char kShownArena[] = "/memfd:openreg-";

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

Folder OpenFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = fd >= 0 ? fdopendir(fd) : nullptr;
  if (folder == nullptr && fd >= 0) close(fd);
  return Folder(folder);
}

bool BeginsWith(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Reserved and not touched yet; `own` is the file of this process, which a child may have as well.
uint64_t PromiseOf(int pid, const struct stat& own) {
  Folder folder = OpenFolder("/proc/" + std::to_string(pid) + "/fd");
  if (folder == nullptr) return 0;
  uint64_t reserved_bytes = 0, touched_bytes = 0;
  while (const dirent* entry = readdir(folder.get())) {
    char target[sizeof(kShownName) + 16];
    const ssize_t length =
        readlinkat(dirfd(folder.get()), entry->d_name, target, sizeof(target) - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    const bool reserved = BeginsWith(target, kShownName);
    const char digit = BeginsWith(target, kShownArena) ? target[strlen(kShownArena)] : '\0';
    struct stat info;
    if ((!reserved && (digit < '0' || digit > '9')) ||
        fstatat(dirfd(folder.get()), entry->d_name, &info, 0) != 0) {
      continue;
    }
    if (!reserved) {
      touched_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    } else if (info.st_ino != own.st_ino || info.st_dev != own.st_dev) {
      reserved_bytes += static_cast<uint64_t>(info.st_size);
    }
  }
  return reserved_bytes - std::min(reserved_bytes, touched_bytes);
}

uint64_t LargestFile() {
  rlimit limit;
  // Beyond RLIMIT_FSIZE ftruncate would raise SIGXFSZ.
  const bool known = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return std::min<uint64_t>(known ? limit.rlim_cur : INT64_MAX, INT64_MAX);
}

}  // namespace

Promises::~Promises() { CloseTracked(fd_); }

void Promises::Show(uint64_t reserved_bytes) {
  if (fd_ < 0) {
    ScopedForkLock lock;
    fd_ = AboveStandard(memfd_create(kName, MFD_CLOEXEC));
    if (fd_ < 0) return;
    TrackDescriptor(fd_);
  }
  // The file stays empty, so this changes a number only.
  (void)!ftruncate(fd_, static_cast<off_t>(std::min(reserved_bytes, LargestFile())));
}

std::vector<Promise> Promises::OfOthers() const {
  std::vector<Promise> promises;
  struct stat own = {};
  if (fd_ >= 0) (void)fstat(fd_, &own);
  Folder processes = OpenFolder("/proc");
  if (processes == nullptr) return promises;
  const int self = getpid();
  while (const dirent* entry = readdir(processes.get())) {
    const int pid = std::atoi(entry->d_name);
    struct stat info;
    if (pid <= 0 || pid == self || fstatat(dirfd(processes.get()), entry->d_name, &info, 0) != 0 ||
        info.st_uid != geteuid()) {
      continue;
    }
    const uint64_t bytes = PromiseOf(pid, own);
    if (bytes != 0) promises.push_back({pid, bytes});
  }
  return promises;
}

}  // namespace openreg
