#include "openreg/runtime/ipc_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "openreg/runtime/block_allocator.h"
#include "openreg/runtime/config.h"
#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr size_t kMaxConnections = 1024;
constexpr size_t kMaxUnknown = 64;                      // that have not shown the secret yet
constexpr int64_t kUnknownNs = INT64_C(5000000000);     // how long they may take
constexpr int64_t kAcceptPauseNs = INT64_C(100000000);  // after running out of descriptors
constexpr size_t kMaxRetains = size_t{1} << 20;         // different blocks per connection
constexpr int kPollMs = 1000;
// So that an id fits above an event's number.
constexpr uint32_t kMaxConnectionId = (uint32_t{1} << (64 - SharedEventCell::kRecorderShift)) - 1;

}  // namespace

bool IpcServer::IsOwn(const IpcHandle& handle) const {
  return started_.load(std::memory_order_acquire) && handle.address == address_;
}

Status IpcServer::Export(IpcHandle* handle) {
  if (!started_.load(std::memory_order_acquire)) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_.load(std::memory_order_relaxed)) OPENREG_RETURN_IF_ERROR(StartLocked());
  }
  handle->address = address_;
  handle->pid = static_cast<int32_t>(getpid());
  return Status();
}

Status IpcServer::StartLocked() {
  if (stop_.load()) return Status(orErrorInitializationError, "the process is exiting");
  OPENREG_RETURN_IF_ERROR(RandomBytes(&address_, sizeof address_));
  OPENREG_RETURN_IF_ERROR(ListenAt(address_.name, &listen_fd_));
  int error = 0;
  {
    ScopedForkLock lock;
    wake_fd_ = AboveStandard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    error = errno;
    if (wake_fd_ >= 0) TrackDescriptor(wake_fd_);
    spare_fd_ = AboveStandard(fcntl(listen_fd_, F_DUPFD_CLOEXEC, 0));
    if (spare_fd_ >= 0) TrackDescriptor(spare_fd_);
  }
  if (wake_fd_ >= 0) error = StartThread(&thread_, ThreadMain, this);
  if (wake_fd_ < 0 || error != 0) {
    CloseTracked(listen_fd_);
    CloseTracked(wake_fd_);
    CloseTracked(spare_fd_);
    return SystemError("starting the thread for peer processes", error);
  }
  started_.store(true, std::memory_order_release);
  return Status();
}

void IpcServer::Stop(Deadline deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stop_.exchange(true) || !started_.load()) return;
  uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  JoinOrDetach(thread_, deadline);
}

void* IpcServer::ThreadMain(void* self) {
  pthread_setname_np(pthread_self(), "openreg-ipc");
  static_cast<IpcServer*>(self)->Serve();
  return nullptr;
}

void IpcServer::Serve() {
  std::vector<pollfd> polls;
  while (!stop_.load()) {
    polls.clear();
    polls.push_back({wake_fd_, POLLIN, 0});
    bool accepting = NowNs() >= accept_after_ns_;
    polls.push_back({accepting ? listen_fd_ : -1, POLLIN, 0});
    size_t count = connections_.size();
    for (const auto& connection : connections_) polls.push_back({connection->fd, POLLIN, 0});
    poll(polls.data(), polls.size(), accepting ? kPollMs : 50);
    int64_t now_ns = NowNs();
    for (size_t i = 0; i < count; ++i) {
      Connection* connection = connections_[i].get();
      bool keep = polls[i + 2].revents == 0 || Receive(connection);
      if (!connection->known && now_ns - connection->since_ns > kUnknownNs) keep = false;
      if (!keep) Close(connection);
    }
    std::erase_if(connections_, [](const auto& connection) { return connection->fd < 0; });
    if (polls[1].revents != 0) Accept();
  }
  for (auto& connection : connections_) Close(connection.get());
  CloseTracked(listen_fd_);
  CloseTracked(spare_fd_);
}

void IpcServer::Accept() {
  while (true) {
    int fd;
    {
      ScopedForkLock lock;
      fd = AboveStandard(accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd >= 0) TrackDescriptor(fd);
    }
    if (fd < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      // Out of descriptors or memory: the socket stays readable, so look away for a while if not
      // even the spare one helps.
      if (TurnAway()) continue;
      accept_after_ns_ = NowNs() + kAcceptPauseNs;
      return;
    }
    auto unknown = std::count_if(connections_.begin(), connections_.end(),
                                 [](const auto& connection) { return !connection->known; });
    if (connections_.size() >= kMaxConnections || static_cast<size_t>(unknown) >= kMaxUnknown ||
        !PeerIsSameUser(fd)) {
      CloseTracked(fd);
      continue;
    }
    auto connection = std::make_unique<Connection>();
    connection->fd = fd;
    connection->id = last_connection_ = last_connection_ % kMaxConnectionId + 1;
    connection->since_ns = NowNs();
    connections_.push_back(std::move(connection));
  }
}

// Accepts one connection with the spare descriptor and closes it: whoever asks is refused at once
// instead of being kept waiting for its deadline.
bool IpcServer::TurnAway() {
  if (spare_fd_ < 0) return false;
  CloseTracked(spare_fd_);
  ScopedForkLock lock;
  int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) close(fd);
  spare_fd_ = AboveStandard(fcntl(listen_fd_, F_DUPFD_CLOEXEC, 0));
  if (spare_fd_ >= 0) TrackDescriptor(spare_fd_);
  return fd >= 0;
}

void IpcServer::Close(Connection* connection) {
  for (const auto& [block, retains] : connection->memory) {
    BlockAllocator* allocator = allocator_of_(block.first);
    for (uint32_t i = 0; i < retains; ++i) {
      (void)allocator->Release(allocator->arena().device_base() + block.second);
    }
  }
  connection->memory.clear();
  for (const auto& [index, held] : connection->events) {
    SharedEvent::Abandon(held.first.get(), connection->id);
  }
  connection->events.clear();
  CloseTracked(connection->fd);
  connection->fd = -1;
}

bool IpcServer::Receive(Connection* connection) {
  // One request per round, so that a busy peer does not keep the others waiting.
  char* bytes = reinterpret_cast<char*>(&connection->request);
  ssize_t received = recv(connection->fd, bytes + connection->received,
                          sizeof(IpcRequest) - connection->received, MSG_DONTWAIT);
  if (received < 0) return errno == EAGAIN || errno == EINTR;
  if (received == 0) return false;
  connection->received += static_cast<size_t>(received);
  if (connection->received < sizeof(IpcRequest)) return true;
  connection->received = 0;
  return Answer(connection);
}

bool IpcServer::Answer(Connection* connection) {
  const IpcRequest& request = connection->request;
  uint64_t difference =
      (request.secret[0] ^ address_.secret[0]) | (request.secret[1] ^ address_.secret[1]);
  if (request.magic != kIpcMagic || request.version != kIpcVersion || difference != 0) return false;
  connection->known = true;
  IpcReply reply;
  int fd = -1;
  orError_t error = orErrorInvalidValue;
  switch (request.operation) {
    case IpcOperation::kOpenDevice: {
      BlockAllocator* allocator = allocator_of_(request.device);
      if (allocator == nullptr) break;
      // A page that the peer touches before this process would be charged to the peer's cgroup,
      // whose limit nobody has asked: the kernel would kill the peer for it.
      if (InOtherMemoryCgroup(PidOfPeer(connection->fd)) && !allocator->TakePagesAtOnce()) {
        error = orErrorMemoryAllocation;
        break;
      }
      fd = allocator->arena().fd;
      reply.size = allocator->arena().size();
      error = orSuccess;
      break;
    }
    case IpcOperation::kRetainMemory:
      error = RetainMemory(connection, &reply.size);
      break;
    case IpcOperation::kReleaseMemory:
      error = ReleaseMemory(connection);
      break;
    case IpcOperation::kOpenEvents:
      fd = events_.fd();
      reply.size = EventPage::kBytes;
      error = fd >= 0 ? orSuccess : orErrorInvalidResourceHandle;
      break;
    case IpcOperation::kRetainEvent:
      error = RetainEvent(connection, &reply.size);
      break;
    case IpcOperation::kReleaseEvent:
      error = ReleaseEvent(connection);
      break;
  }
  reply.error = error;
  return SendReply(connection->fd, reply, fd);
}

orError_t IpcServer::RetainMemory(Connection* connection, uint64_t* size) {
  const IpcRequest& request = connection->request;
  BlockAllocator* allocator = allocator_of_(request.device);
  if (allocator == nullptr) return orErrorInvalidValue;
  if (connection->memory.size() >= kMaxRetains) return orErrorMemoryAllocation;
  uint32_t& retains = connection->memory[{request.device, request.offset}];
  if (retains == UINT32_MAX || !allocator->RetainExact(request.offset, request.generation, size)) {
    if (retains == 0) connection->memory.erase({request.device, request.offset});
    return orErrorInvalidResourceHandle;
  }
  ++retains;
  return orSuccess;
}

orError_t IpcServer::ReleaseMemory(Connection* connection) {
  const IpcRequest& request = connection->request;
  auto it = connection->memory.find({request.device, request.offset});
  if (it == connection->memory.end()) return orErrorInvalidResourceHandle;
  if (--it->second == 0) connection->memory.erase(it);
  BlockAllocator* allocator = allocator_of_(request.device);
  (void)allocator->Release(allocator->arena().device_base() + request.offset);
  return orSuccess;
}

orError_t IpcServer::RetainEvent(Connection* connection, uint64_t* recorder) {
  auto cell = events_.Find(connection->request.offset, connection->request.generation);
  if (cell == nullptr) return orErrorInvalidResourceHandle;
  auto& held = connection->events[connection->request.offset];
  if (held.second == UINT32_MAX) return orErrorMemoryAllocation;
  held.first = std::move(cell);
  ++held.second;
  *recorder = connection->id;
  return orSuccess;
}

orError_t IpcServer::ReleaseEvent(Connection* connection) {
  auto it = connection->events.find(connection->request.offset);
  if (it == connection->events.end()) return orErrorInvalidResourceHandle;
  if (--it->second.second == 0) connection->events.erase(it);
  return orSuccess;
}

}  // namespace openreg
