#include "openreg/runtime/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr size_t kArenaUnit = size_t{2} << 20;
static_assert(kArenaSeals == (F_SEAL_SHRINK | F_SEAL_GROW));

size_t FileSizeLimit() {
  rlimit limit;
  // Beyond RLIMIT_FSIZE ftruncate would raise SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

Status MakeFile(int device, size_t size, int* fd) {
  ScopedForkLock lock;
  std::string name = Format("openreg-%d", device);
  *fd = AboveStandard(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (*fd < 0) return SystemError("memfd_create", errno);
  if (ftruncate(*fd, static_cast<off_t>(size)) != 0 ||
      fcntl(*fd, F_ADD_SEALS, kArenaSeals | F_SEAL_SEAL) != 0) {
    Status status = SystemError("sizing the device's memory file", errno);
    close(*fd);
    *fd = -1;
    return status;
  }
  TrackDescriptor(*fd);
  return Status();
}

}  // namespace

Status Arena::Create(AddressSpace* space, int device, size_t size, Arena* arena) {
  // Half of the free addresses stay for the other devices and for imports.
  size = std::min({size, space->LargestFree() / 2, FileSizeLimit()});
  size = size / kArenaUnit * kArenaUnit;
  if (size == 0) {
    return Status(orErrorInitializationError,
                  Format("no addresses are left for the memory of device %d: raise `ulimit -v` or "
                         "`ulimit -f`",
                         device));
  }
  int fd = -1;
  OPENREG_RETURN_IF_ERROR(MakeFile(device, size, &fd));
  Region* region = nullptr;
  Status status = space->Map(fd, size, &region);
  if (!status.ok()) {
    CloseTracked(fd);
    return status;
  }
  // Where the system allows huge pages for shared memory on request, ask for them.
  madvise(region->device_base + space->delta(), size, MADV_HUGEPAGE);
  region->device = device;
  arena->fd = fd;
  arena->region = region;
  return Status();
}

bool Arena::Commit(size_t offset, size_t size) const {
  int result;
  do {
    result =
        fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void Arena::Punch(size_t offset, size_t size) const {
  // Fails only for arguments that are wrong; the pages then merely stay.
  (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(size));
}

}  // namespace openreg
