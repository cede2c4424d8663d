// The owner's shared memory for interprocess events: a sealed memfd of cells, which peers map, too.
#ifndef OPENREG_RUNTIME_EVENT_PAGE_H_
#define OPENREG_RUNTIME_EVENT_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg/runtime/ipc_event.h"
#include "openreg/runtime/status.h"

namespace openreg {

class EventPage {
 public:
  static constexpr size_t kCellBytes = sizeof(SharedEventCell);
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr size_t kCellCount = kBytes / kCellBytes;

  // A fresh cell; it is free again when the last copy of the pointer has gone. The page must
  // outlive it. Errors: orErrorMemoryAllocation.
  Status NewCell(std::shared_ptr<SharedEventCell>* cell);
  // The name of a cell for a handle.
  void Locate(const std::shared_ptr<SharedEventCell>& cell, uint64_t* index, uint64_t* generation);
  // The live cell with that name, or NULL.
  std::shared_ptr<SharedEventCell> Find(uint64_t index, uint64_t generation);
  // What peers get. -1 before the first cell.
  int fd() const { return fd_; }

 private:
  struct Slot {
    std::weak_ptr<SharedEventCell> cell;
    uint64_t generation = 0;
  };
  Status Map();
  void FreeCell(size_t index);

  std::mutex mutex_;  // guards everything
  char* base_ = nullptr;
  int fd_ = -1;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_EVENT_PAGE_H_
