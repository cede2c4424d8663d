// One device: its streams, and its memory once somebody uses it.
#ifndef OPENREG_RUNTIME_DEVICE_H_
#define OPENREG_RUNTIME_DEVICE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg/runtime/block_allocator.h"
#include "openreg/runtime/stream.h"

namespace openreg {

struct Device {
  int index = 0;
  Stream* default_stream = nullptr;  // constant after the runtime's start

  // The memory, NULL before its first use. Set once.
  std::atomic<BlockAllocator*> allocator{nullptr};

  std::mutex mutex;              // guards the rest; never held while waiting
  std::vector<Stream*> streams;  // all that have a handle or are not empty yet
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_DEVICE_H_
