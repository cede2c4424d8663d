#include "openreg/runtime/ipc_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "openreg/runtime/arena.h"
#include "openreg/runtime/event_page.h"
#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

// How long the owner may take to note that something is no longer used.
constexpr int64_t kReleaseMs = 2000;

using PeerLock = std::unique_lock<FutexLock>;

Status LockPeer(FutexLock* mutex, Deadline deadline, PeerLock* lock) {
  if (!mutex->LockUntil(deadline)) {
    return Status(orErrorTimeout, "another thread's request to the peer process takes too long");
  }
  *lock = PeerLock(*mutex, std::adopt_lock);
  return Status();
}

Status ReplyError(const IpcReply& reply, const char* what, const IpcHandle& handle) {
  if (reply.error == orSuccess) return Status();
  if (reply.error == orErrorInvalidResourceHandle) {
    return Status(orErrorInvalidResourceHandle,
                  Format("%s: process %d has freed what the handle stands for", what, handle.pid));
  }
  return Status(static_cast<orError_t>(reply.error),
                Format("%s: process %d refused the handle", what, handle.pid));
}

// The file behind a descriptor is as large as the peer says and cannot shrink under our mapping.
Status CheckFile(int fd, uint64_t size) {
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != size || size == 0 ||
      (fcntl(fd, F_GET_SEALS) & kArenaSeals) != kArenaSeals) {
    return Status(orErrorInvalidResourceHandle,
                  "the peer process sent something else than the memory of a device");
  }
  return Status();
}

// Tells the owner, when it goes, that a block or an event is no longer used here.
struct Release {
  std::shared_ptr<IpcPeer> peer;
  std::function<void(IpcPeer&)> tell;
  ~Release() { tell(*peer); }
};

}  // namespace

// ---------------------------------------------------------------------------- IpcPeer

IpcPeer::~IpcPeer() { CloseTracked(fd_.load()); }

bool IpcPeer::Alive() const {
  int fd = fd_.load(std::memory_order_acquire);
  if (fd < 0) return false;
  // Not POLLIN: a reply may be waiting for the thread that asked.
  pollfd entry{fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) == 0;
}

Status IpcPeer::CallLocked(IpcRequest request, Deadline deadline, IpcReply* reply, int* passed_fd) {
  *passed_fd = -1;
  if (fd_.load(std::memory_order_relaxed) < 0) {
    int fd;
    OPENREG_RETURN_IF_ERROR(ConnectTo(address_.name, deadline, &fd));
    fd_.store(fd, std::memory_order_release);
  }
  request.secret[0] = address_.secret[0];
  request.secret[1] = address_.secret[1];
  Status status = Exchange(fd_.load(), request, deadline, reply, passed_fd);
  // A reply that comes later would be taken for that of the next request: nothing more is sent.
  if (!status.ok()) shutdown_ = true;
  return status;
}

// ---------------------------------------------------------------------------- ImportedArena

ImportedArena::~ImportedArena() { space_->Unmap(region_); }

bool ImportedArena::FindBlock(size_t offset, size_t* start, size_t* size) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = blocks_.upper_bound(offset);
  if (next == blocks_.begin()) return false;
  auto it = std::prev(next);
  if (offset - it->first >= it->second.size) return false;
  *start = it->first;
  *size = it->second.size;
  return true;
}

// ---------------------------------------------------------------------------- IpcClient

std::shared_ptr<IpcPeer> IpcClient::PeerFor(const IpcAddress& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(peers_, [](const auto& peer) { return peer.expired(); });
  for (const auto& weak : peers_) {
    std::shared_ptr<IpcPeer> peer = weak.lock();
    if (peer != nullptr && peer->address_ == address && !peer->shutdown_) return peer;
  }
  auto peer = std::make_shared<IpcPeer>(address);
  peers_.push_back(peer);
  return peer;
}

Status IpcClient::MapArena(int fd, uint64_t size, const std::shared_ptr<IpcPeer>& peer, int device,
                           std::shared_ptr<ImportedArena>* arena) {
  OPENREG_RETURN_IF_ERROR(CheckFile(fd, size));
  Region* region;
  OPENREG_RETURN_IF_ERROR(space_->Map(fd, size, &region));
  *arena = std::make_shared<ImportedArena>(space_, peer, region);
  region->device = device;
  region->imported = arena->get();
  space_->Publish(region);
  return Status();
}

Status IpcClient::OpenDeviceLocked(const std::shared_ptr<IpcPeer>& peer, const IpcHandle& handle,
                                   Deadline deadline, std::shared_ptr<ImportedArena>* arena) {
  auto known = peer->arenas_.find(handle.device);
  if (known != peer->arenas_.end() && (*arena = known->second.lock()) != nullptr) return Status();
  IpcRequest request;
  request.operation = IpcOperation::kOpenDevice;
  request.device = handle.device;
  IpcReply reply;
  int fd;
  OPENREG_RETURN_IF_ERROR(peer->CallLocked(request, deadline, &reply, &fd));
  Status status = ReplyError(reply, "opening a device", handle);
  if (status.ok()) status = MapArena(fd, reply.size, peer, handle.device, arena);
  CloseTracked(fd);
  if (status.ok()) peer->arenas_[handle.device] = *arena;
  return status;
}

Status IpcClient::OpenDevice(const IpcHandle& handle, Deadline deadline,
                             std::shared_ptr<ImportedArena>* arena) {
  std::shared_ptr<IpcPeer> peer = PeerFor(handle.address);
  PeerLock lock;
  OPENREG_RETURN_IF_ERROR(LockPeer(&peer->mutex_, deadline, &lock));
  return OpenDeviceLocked(peer, handle, deadline, arena);
}

Status IpcClient::OpenMemory(const IpcHandle& handle, Deadline deadline, void** ptr) {
  std::shared_ptr<IpcPeer> peer = PeerFor(handle.address);
  std::shared_ptr<ImportedArena> arena;
  PeerLock lock;
  OPENREG_RETURN_IF_ERROR(LockPeer(&peer->mutex_, deadline, &lock));
  OPENREG_RETURN_IF_ERROR(OpenDeviceLocked(peer, handle, deadline, &arena));
  size_t arena_size = arena->region().size;
  if (handle.offset >= arena_size) return InvalidValue("IPC handle: the offset is out of range");
  *ptr = arena->region().device_base + handle.offset;
  {
    std::lock_guard<std::mutex> blocks_lock(arena->mutex_);
    auto open = arena->blocks_.find(handle.offset);
    if (open != arena->blocks_.end() && open->second.generation == handle.generation) {
      ++open->second.opens;
      return Status();
    }
  }
  IpcRequest request;
  request.operation = IpcOperation::kRetainMemory;
  request.device = handle.device;
  request.offset = handle.offset;
  request.generation = handle.generation;
  IpcReply reply;
  int fd;
  OPENREG_RETURN_IF_ERROR(peer->CallLocked(request, deadline, &reply, &fd));
  CloseTracked(fd);
  OPENREG_RETURN_IF_ERROR(ReplyError(reply, "opening device memory", handle));
  size_t size = std::min<size_t>(reply.size, arena_size - handle.offset);
  std::lock_guard<std::mutex> blocks_lock(arena->mutex_);
  arena->blocks_[handle.offset] = {size, handle.generation, 1, arena};
  return Status();
}

Status IpcClient::CloseMemory(ImportedArena* arena, void* ptr, std::shared_ptr<void>* last) {
  auto offset = static_cast<size_t>(static_cast<char*>(ptr) - arena->region().device_base);
  int device = arena->region().device;
  std::shared_ptr<ImportedArena> self;
  {
    std::lock_guard<std::mutex> lock(arena->mutex_);
    auto open = arena->blocks_.find(offset);
    if (open == arena->blocks_.end()) {
      return InvalidValue(Format("close: %p was not opened, or is closed already", ptr));
    }
    if (--open->second.opens > 0) return Status();
    self = open->second.self;
    arena->blocks_.erase(open);
  }
  auto release = std::make_shared<Release>();
  release->peer = arena->peer_;
  // `self` keeps the mapping until then.
  release->tell = [self, device, offset](IpcPeer& peer) {
    IpcRequest request;
    request.operation = IpcOperation::kReleaseMemory;
    request.device = static_cast<uint64_t>(device);
    request.offset = offset;
    peer.Tell(request);
  };
  *last = std::move(release);
  return Status();
}

void IpcPeer::Tell(const IpcRequest& request) {
  Deadline deadline = Deadline::AfterMs(kReleaseMs);
  PeerLock lock;
  if (!LockPeer(&mutex_, deadline, &lock).ok() || shutdown_) return;
  IpcReply reply;
  int fd;
  // If the owner is gone there is nobody to tell.
  (void)CallLocked(request, deadline, &reply, &fd);
  CloseTracked(fd);
}

Status IpcClient::OpenEvent(const IpcHandle& handle, Deadline deadline, SharedEvent* event) {
  std::shared_ptr<IpcPeer> peer = PeerFor(handle.address);
  PeerLock lock;
  OPENREG_RETURN_IF_ERROR(LockPeer(&peer->mutex_, deadline, &lock));
  if (handle.offset >= EventPage::kCellCount) {
    return InvalidValue("IPC handle: the event's number is out of range");
  }
  IpcReply reply;
  int fd;
  std::shared_ptr<void> page = peer->event_page_.lock();
  if (page == nullptr) {
    IpcRequest open;
    open.operation = IpcOperation::kOpenEvents;
    OPENREG_RETURN_IF_ERROR(peer->CallLocked(open, deadline, &reply, &fd));
    Status status = ReplyError(reply, "opening events", handle);
    if (status.ok() && reply.size != EventPage::kBytes) status = CheckFile(-1, 0);
    if (status.ok()) status = CheckFile(fd, reply.size);
    void* memory = MAP_FAILED;
    if (status.ok()) {
      memory = mmap(nullptr, EventPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (memory == MAP_FAILED) status = Status(orErrorMapBufferObject, "mmap of a peer's events");
    }
    CloseTracked(fd);
    OPENREG_RETURN_IF_ERROR(std::move(status));
    madvise(memory, EventPage::kBytes, MADV_DONTFORK);
    page = std::shared_ptr<void>(memory, [](void* mapped) { munmap(mapped, EventPage::kBytes); });
    peer->event_page_ = page;
  }
  IpcRequest retain;
  retain.operation = IpcOperation::kRetainEvent;
  retain.offset = handle.offset;
  retain.generation = handle.generation;
  OPENREG_RETURN_IF_ERROR(peer->CallLocked(retain, deadline, &reply, &fd));
  CloseTracked(fd);
  OPENREG_RETURN_IF_ERROR(ReplyError(reply, "opening an event", handle));
  auto* cell = reinterpret_cast<SharedEventCell*>(static_cast<char*>(page.get()) +
                                                  handle.offset * EventPage::kCellBytes);
  uint64_t index = handle.offset;
  std::shared_ptr<SharedEventCell> shared(cell, [peer, page, index](SharedEventCell*) {
    IpcRequest release;
    release.operation = IpcOperation::kReleaseEvent;
    release.offset = index;
    peer->Tell(release);
  });
  *event = SharedEvent::Import(std::move(shared), peer, static_cast<uint32_t>(reply.size));
  return Status();
}

}  // namespace openreg
