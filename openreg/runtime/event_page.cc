#include "openreg/runtime/event_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "openreg/runtime/arena.h"
#include "openreg/runtime/fork_guard.h"

namespace openreg {

Status EventPage::Map() {
  if (base_ != nullptr) return Status();
  {
    ScopedForkLock lock;
    fd_ = AboveStandard(memfd_create("openreg-events", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd_ < 0) return SystemError("memfd_create", errno);
    TrackDescriptor(fd_);
  }
  Status status;
  if (ftruncate(fd_, kBytes) != 0 || fcntl(fd_, F_ADD_SEALS, kArenaSeals | F_SEAL_SEAL) != 0) {
    status = SystemError("setting up the page for interprocess events", errno);
  } else {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) {
      status = SystemError("mmap of the page for interprocess events", errno);
    } else {
      madvise(memory, kBytes, MADV_DONTFORK);
      base_ = static_cast<char*>(memory);
      return Status();
    }
  }
  CloseTracked(fd_);
  fd_ = -1;
  return status;
}

Status EventPage::NewCell(std::shared_ptr<SharedEventCell>* cell) {
  std::lock_guard<std::mutex> lock(mutex_);
  OPENREG_RETURN_IF_ERROR(Map());
  size_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (slots_.size() < kCellCount) {
    index = slots_.size();
    slots_.emplace_back();
  } else {
    return Status(orErrorMemoryAllocation,
                  Format("%zu interprocess events exist already", kCellCount));
  }
  auto* memory = new (base_ + index * kCellBytes) SharedEventCell{};
  *cell = std::shared_ptr<SharedEventCell>(memory, [this, index](void*) { FreeCell(index); });
  slots_[index].cell = *cell;
  ++slots_[index].generation;
  return Status();
}

void EventPage::FreeCell(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(index);
}

void EventPage::Locate(const std::shared_ptr<SharedEventCell>& cell, uint64_t* index,
                       uint64_t* generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  *index = static_cast<uint64_t>(reinterpret_cast<char*>(cell.get()) - base_) / kCellBytes;
  *generation = slots_[*index].generation;
}

std::shared_ptr<SharedEventCell> EventPage::Find(uint64_t index, uint64_t generation) {
  // Declared first: if this is the last pointer, its end locks the mutex again.
  std::shared_ptr<SharedEventCell> cell;
  std::lock_guard<std::mutex> lock(mutex_);
  if (index < slots_.size() && slots_[index].generation == generation) {
    cell = slots_[index].cell.lock();
  }
  return cell;
}

}  // namespace openreg
