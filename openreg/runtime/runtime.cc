#include "openreg/runtime/runtime.h"

#include <algorithm>
#include <cstdlib>

#include "openreg/runtime/fork_guard.h"
#include "openreg/runtime/ipc.h"

namespace openreg {
namespace {

// How long work in flight may go on when the process exits.
constexpr int64_t kExitDeadlineMs = 1000;

}  // namespace

std::atomic<Runtime*> Runtime::current_{nullptr};
std::atomic<bool> Runtime::forked_{false};

Runtime::Runtime(const Config& config)
    : config_(config),
      budget_(config.memory_bytes),
      workers_([this](Stream* stream) { RecycleStream(stream); }),
      host_memory_([this](std::vector<Position>* positions) { BusyStreams(positions); }) {}

Status Runtime::Get(Runtime** runtime) {
  *runtime = Current();
  if (*runtime != nullptr) return Status();
  if (Forked()) {
    return Status(
        orErrorInitializationError,
        "the device cannot be used in a forked child of a process that had used it: start "
        "the child with exec (multiprocessing's \"spawn\" or \"forkserver\"), or fork "
        "before the first use");
  }
  const Config* config;
  OPENREG_RETURN_IF_ERROR(GetConfig(&config));
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  *runtime = Current();
  if (*runtime != nullptr) return Status();
  std::unique_ptr<Runtime> fresh(new Runtime(*config));
  OPENREG_RETURN_IF_ERROR(fresh->Start());
  InstallForkHandlers([] {
    current_.store(nullptr, std::memory_order_relaxed);
    forked_.store(true, std::memory_order_relaxed);
  });
  std::atexit(AtExit);
  *runtime = fresh.release();
  current_.store(*runtime, std::memory_order_release);
  return Status();
}

Status Runtime::Start() {
  OPENREG_RETURN_IF_ERROR(space_.Reserve());
  for (int i = 0; i < config_.device_count; ++i) {
    devices_[static_cast<size_t>(i)].index = i;
    orStream_t handle;
    devices_[static_cast<size_t>(i)].default_stream =
        NewStream(i, kLowestPriority, static_cast<uint64_t>(i), &handle);
  }
  ipc_ = std::make_unique<Ipc>(this);
  return Status();
}

void Runtime::AtExit() {
  Runtime* runtime = Current();
  if (runtime == nullptr) return;
  Deadline deadline = Deadline::AfterMs(kExitDeadlineMs);
  runtime->workers_.StopAll(deadline);
  runtime->ipc_->Stop(deadline);
}

Status Runtime::GetDevice(int index, Device** device) {
  if (index < 0 || index >= config_.device_count) {
    return Status(orErrorInvalidDevice, Format("expected a device from 0 to %d, got %d",
                                               config_.device_count - 1, index));
  }
  *device = &devices_[static_cast<size_t>(index)];
  return Status();
}

Status Runtime::GetAllocator(int index, BlockAllocator** allocator) {
  Device* device;
  OPENREG_RETURN_IF_ERROR(GetDevice(index, &device));
  *allocator = device->allocator.load(std::memory_order_acquire);
  if (*allocator != nullptr) return Status();
  std::lock_guard<std::mutex> lock(memory_mutex_);
  *allocator = device->allocator.load(std::memory_order_acquire);
  if (*allocator != nullptr) return Status();
  Arena arena;
  // Twice the limit: addresses cost nothing, and holes then cannot make a request fail.
  OPENREG_RETURN_IF_ERROR(Arena::Create(&space_, index, 2 * config_.memory_bytes, &arena));
  AllocatorEnvironment environment;
  environment.busy_streams = [this](std::vector<Position>* positions) { BusyStreams(positions); };
  environment.trim_others = [this](int but) {
    for (Device& other : devices_) {
      BlockAllocator* its = other.allocator.load(std::memory_order_acquire);
      if (its != nullptr && other.index != but) its->Trim();
    }
  };
  auto fresh = std::make_unique<BlockAllocator>(index, arena, &budget_, std::move(environment));
  Status status = fresh->Init();
  if (!status.ok()) {
    space_.Unmap(arena.region);
    CloseTracked(arena.fd);
    return status;
  }
  budget_.AddFile(arena.fd);
  arena.region->allocator = fresh.get();
  space_.Publish(arena.region);
  *allocator = fresh.release();  // for the life of the process
  device->allocator.store(*allocator, std::memory_order_release);
  return Status();
}

BlockAllocator* Runtime::AllocatorIfAny(uint64_t index) {
  if (index >= static_cast<uint64_t>(config_.device_count)) return nullptr;
  return devices_[index].allocator.load(std::memory_order_acquire);
}

// ---------------------------------------------------------------------------- streams

Stream* Runtime::NewStream(int device, int priority, uint64_t id, orStream_t* handle) {
  Stream* stream = nullptr;
  *handle = streams_.Insert([&](Stream* object, orStream_t its_handle) {
    object->Start(device, priority, id, &workers_, &activity_, its_handle);
    stream = object;
  });
  if (stream == nullptr) return nullptr;
  Device& owner = devices_[static_cast<size_t>(device)];
  std::lock_guard<std::mutex> lock(owner.mutex);
  owner.streams.push_back(stream);
  return stream;
}

Status Runtime::GetStream(orStream_t handle, int current_device, Stream** stream) {
  if (handle == nullptr) {
    *stream = devices_[static_cast<size_t>(current_device)].default_stream;
    return Status();
  }
  *stream = streams_.Get(handle);
  if (*stream != nullptr) return Status();
  return Status(
      orErrorInvalidResourceHandle,
      Format("expected a stream, got %p: unknown or destroyed", static_cast<void*>(handle)));
}

Status Runtime::CreateStream(int device, int priority, orStream_t* handle) {
  Device* owner;
  OPENREG_RETURN_IF_ERROR(GetDevice(device, &owner));
  workers_.Reap();
  priority = std::clamp(priority, kHighestPriority, kLowestPriority);
  if (NewStream(device, priority, next_stream_id_.fetch_add(1), handle) == nullptr) {
    return Status(orErrorMemoryAllocation, "a million streams exist already");
  }
  return Status();
}

Status Runtime::DestroyStream(orStream_t handle) {
  Stream* stream;
  OPENREG_RETURN_IF_ERROR(GetStream(handle, 0, &stream));
  if (stream == devices_[static_cast<size_t>(stream->device())].default_stream) {
    return InvalidValue("the default stream of a device cannot be destroyed");
  }
  if (streams_.Remove(handle) == nullptr) return GetStream(handle, 0, &stream);
  stream->Retire();
  workers_.Reap();
  return Status();
}

void Runtime::RecycleStream(Stream* stream) {
  {
    Device& owner = devices_[static_cast<size_t>(stream->device())];
    std::lock_guard<std::mutex> lock(owner.mutex);
    std::erase(owner.streams, stream);
  }
  for (Device& device : devices_) {
    BlockAllocator* allocator = device.allocator.load(std::memory_order_acquire);
    if (allocator != nullptr) allocator->StreamEnded(stream);
  }
  streams_.Recycle(stream->handle());
}

Status Runtime::SynchronizeDevice(int index, Deadline deadline) {
  Device* device;
  OPENREG_RETURN_IF_ERROR(GetDevice(index, &device));
  struct Target {
    Stream* stream;
    uint64_t sequence;
  };
  std::vector<Target> targets;
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    for (Stream* stream : device->streams) targets.push_back({stream, stream->issued()});
  }
  for (const Target& target : targets) {
    OPENREG_RETURN_IF_ERROR(target.stream->WaitFor(target.sequence, deadline, "synchronise"));
  }
  // All are cleared, so all are told.
  Status first;
  std::string others;
  for (const Target& target : targets) {
    Status status = target.stream->TakeError();
    if (status.ok()) continue;
    if (!first.ok() && !Outranks(first.code(), status.code())) std::swap(first, status);
    if (first.ok()) {
      first = std::move(status);
    } else {
      others += Format("\nand: %s", status.message());
    }
  }
  return others.empty() ? std::move(first) : Status(first.code(), first.message() + others);
}

void Runtime::BusyStreams(std::vector<Position>* positions) {
  for (int i = 0; i < config_.device_count; ++i) {
    Device& device = devices_[static_cast<size_t>(i)];
    std::lock_guard<std::mutex> lock(device.mutex);
    for (Stream* stream : device.streams) {
      uint64_t issued = stream->issued();
      if (!stream->Passed(issued)) positions->push_back({stream, issued});
    }
  }
}

void Runtime::KeepUntilIdle(std::shared_ptr<void> object) {
  if (object == nullptr) return;
  for (int i = 0; i < config_.device_count; ++i) {
    Device& device = devices_[static_cast<size_t>(i)];
    std::lock_guard<std::mutex> lock(device.mutex);
    for (Stream* stream : device.streams) {
      if (stream->Idle()) continue;
      auto* keep = new std::shared_ptr<void>(object);
      Work work;
      work.name = "release";
      work.silent = true;
      work.data[0] = reinterpret_cast<uint64_t>(keep);
      work.run = [](Work& self) {
        delete reinterpret_cast<std::shared_ptr<void>*>(self.data[0]);
        return orSuccess;
      };
      // A stream that has ended meanwhile uses nothing any more.
      if (!stream->Queue(std::move(work)).ok()) delete keep;
    }
  }
}

// ---------------------------------------------------------------------------- events

Status Runtime::GetEvent(orEvent_t handle, Event** event) {
  *event = events_.Get(handle);
  if (*event != nullptr) return Status();
  return Status(
      orErrorInvalidResourceHandle,
      Format("expected an event, got %p: unknown or destroyed", static_cast<void*>(handle)));
}

Status Runtime::CreateEvent(int device, unsigned flags, orEvent_t* handle) {
  constexpr unsigned kKnown = orEventBlockingSync | orEventDisableTiming | orEventInterprocess;
  bool interprocess = (flags & orEventInterprocess) != 0;
  if ((flags & ~kKnown) != 0 || (interprocess && (flags & orEventDisableTiming) == 0)) {
    return InvalidValue(
        Format("event flags: expected a combination of 1, 2 and 4, the last only "
               "together with 2 (no timing), got %u",
               flags));
  }
  SharedEvent shared;
  if (interprocess) OPENREG_RETURN_IF_ERROR(ipc_->NewSharedEvent(&shared));
  return InsertEvent(device, flags, std::move(shared), handle);
}

Status Runtime::InsertEvent(int device, unsigned flags, SharedEvent shared, orEvent_t* handle) {
  orEvent_t inserted = events_.Insert(
      [&](Event* event, orEvent_t) { event->Start(device, flags, std::move(shared)); });
  if (inserted == nullptr) {
    return Status(orErrorMemoryAllocation, "a million events exist already");
  }
  *handle = inserted;
  return Status();
}

Status Runtime::DestroyEvent(orEvent_t handle) {
  Event* event = events_.Remove(handle);
  if (event == nullptr) return GetEvent(handle, &event);
  event->End();
  events_.Recycle(handle);
  return Status();
}

// ---------------------------------------------------------------------------- pointers

Status Runtime::GetPointerInfo(const void* ptr, PointerInfo* info) {
  *info = PointerInfo();
  if (!space_.Contains(ptr)) {
    HostRange range;
    if (host_memory_.Find(ptr, &range)) {
      info->type = orMemoryTypeHost;
      info->base = range.base;
      info->size = range.size;
    }
    return Status();
  }
  const Region* region = space_.Find(ptr);
  if (region != nullptr && region->allocator != nullptr) {
    AllocationInfo allocation;
    if (region->allocator->Find(ptr, &allocation)) {
      *info = {
          orMemoryTypeDevice,    region, region->device_base + allocation.offset, allocation.size,
          allocation.generation, false};
      return Status();
    }
  } else if (region != nullptr) {
    // Of a peer: an allocation that was opened, or any address of a device that was.
    auto offset = static_cast<size_t>(static_cast<const char*>(ptr) - region->device_base);
    size_t start = 0, size = region->size;
    (void)region->imported->FindBlock(offset, &start, &size);
    *info = {orMemoryTypeDevice, region, region->device_base + start, size, 0, true};
    return Status();
  }
  return Status(
      orErrorInvalidDevicePointer,
      Format("%p is an address of device memory, but no live allocation contains it", ptr));
}

}  // namespace openreg
