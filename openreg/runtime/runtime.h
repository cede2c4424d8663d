// The process's runtime: everything with a lifetime of the process hangs here. It comes to life at
// the first use of a device and is never destroyed; at exit its threads are stopped, in a forked
// child it is out of reach.
#ifndef OPENREG_RUNTIME_RUNTIME_H_
#define OPENREG_RUNTIME_RUNTIME_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg/api/openreg.h"
#include "openreg/runtime/activity.h"
#include "openreg/runtime/address_space.h"
#include "openreg/runtime/config.h"
#include "openreg/runtime/device.h"
#include "openreg/runtime/event.h"
#include "openreg/runtime/handle_table.h"
#include "openreg/runtime/host_memory.h"
#include "openreg/runtime/memory_budget.h"
#include "openreg/runtime/status.h"
#include "openreg/runtime/stream.h"
#include "openreg/runtime/worker.h"

namespace openreg {

class Ipc;

// What a pointer is.
struct PointerInfo {
  orMemoryType type = orMemoryTypeUnregistered;
  const Region* region = nullptr;  // of device memory
  char* base = nullptr;            // of the allocation; NULL for unregistered memory
  size_t size = 0;
  uint64_t generation = 0;  // of an own allocation
  bool imported = false;
};

class Runtime {
 public:
  // The runtime, if it lives in this process: one load.
  static Runtime* Current() { return current_.load(std::memory_order_acquire); }
  // Brings it to life if need be. Errors: orErrorInitializationError (after fork, bad environment).
  static Status Get(Runtime** runtime);
  // True in the child of a fork of a process that had used the device.
  static bool Forked() { return forked_.load(std::memory_order_relaxed); }

  const Config& config() const { return config_; }
  AddressSpace& space() { return space_; }
  MemoryBudget& budget() { return budget_; }
  HostMemory& host_memory() { return host_memory_; }
  ActivityLog& activity() { return activity_; }
  WorkerGroup& workers() { return workers_; }
  Ipc& ipc() { return *ipc_; }

  Status GetDevice(int index, Device** device);
  // The device's memory, made at its first use.
  Status GetAllocator(int index, BlockAllocator** allocator);
  // NULL if there is no such device, or its memory was never used.
  BlockAllocator* AllocatorIfAny(uint64_t index);

  // NULL is the default stream of `current_device`.
  Status GetStream(orStream_t handle, int current_device, Stream** stream);
  Status CreateStream(int device, int priority, orStream_t* handle);
  Status DestroyStream(orStream_t handle);
  Status GetEvent(orEvent_t handle, Event** event);
  Status CreateEvent(int device, unsigned flags, orEvent_t* handle);
  Status InsertEvent(int device, unsigned flags, SharedEvent shared, orEvent_t* handle);
  Status DestroyEvent(orEvent_t handle);

  // Waits for the streams of a device and takes their first error.
  Status SynchronizeDevice(int device, Deadline deadline);
  // Positions of all streams, of all devices, that are not idle.
  void BusyStreams(std::vector<Position>* positions);
  // Lets go of the object when the work that is queued on all streams now has ended; at once if
  // there is none.
  void KeepUntilIdle(std::shared_ptr<void> object);

  // Errors: orErrorInvalidDevicePointer for a device-range address without an allocation.
  Status GetPointerInfo(const void* ptr, PointerInfo* info);
  void* KernelPointer(const void* device_ptr) {
    return const_cast<char*>(static_cast<const char*>(device_ptr)) + space_.delta();
  }

  static constexpr int kLowestPriority = 0, kHighestPriority = -1;

 private:
  explicit Runtime(const Config& config);
  Status Start();
  static void AtExit();
  Stream* NewStream(int device, int priority, uint64_t id, orStream_t* handle);
  void RecycleStream(Stream* stream);

  static std::atomic<Runtime*> current_;
  static std::atomic<bool> forked_;

  const Config config_;
  AddressSpace space_;
  MemoryBudget budget_;
  ActivityLog activity_;
  WorkerGroup workers_;
  HostMemory host_memory_;
  std::array<Device, kMaxDevices> devices_;
  std::mutex memory_mutex_;  // one device's memory is set up at a time
  HandleTable<Stream, 1, orStream_t> streams_;
  HandleTable<Event, 2, orEvent_t> events_;
  std::atomic<uint64_t> next_stream_id_{kMaxDevices};
  std::unique_ptr<Ipc> ipc_;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_RUNTIME_H_
