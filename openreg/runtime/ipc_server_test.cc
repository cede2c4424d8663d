// The owner's thread against peers that do not keep to the protocol.
#include "openreg/runtime/ipc_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

#include "openreg/runtime/block_allocator.h"
#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr int64_t kDeadlineMs = 30000;

class IpcServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(space_->Reserve().ok());
    ASSERT_TRUE(Arena::Create(space_.get(), 0, size_t{64} << 20, &arena_).ok());
    AllocatorEnvironment environment;
    environment.busy_streams = [](std::vector<Position>*) {};
    environment.trim_others = [](int) {};
    allocator_ = std::make_unique<BlockAllocator>(0, arena_, &budget_, std::move(environment));
    ASSERT_TRUE(allocator_->Init().ok());
    server_ = std::make_unique<IpcServer>(
        [this](uint64_t device) { return device == 0 ? allocator_.get() : nullptr; });
    ASSERT_TRUE(server_->Export(&handle_).ok());
    ASSERT_TRUE(allocator_->Allocate(1000, allocator_->PoolFor(nullptr), &block_).ok());
    AllocationInfo info;
    ASSERT_TRUE(allocator_->Find(block_, &info));
    offset_ = info.offset;
    generation_ = info.generation;
  }
  void TearDown() override {
    server_->Stop(Deadline::AfterMs(kDeadlineMs));
    server_.reset();
    allocator_.reset();
    space_->Unmap(arena_.region);
    CloseTracked(arena_.fd);
  }

  int Connect() {
    int fd = -1;
    Status status = ConnectTo(handle_.address.name, Deadline::AfterMs(kDeadlineMs), &fd);
    EXPECT_TRUE(status.ok()) << status.message();
    return fd;
  }
  IpcRequest Request(IpcOperation operation) {
    IpcRequest request;
    request.operation = operation;
    request.secret[0] = handle_.address.secret[0];
    request.secret[1] = handle_.address.secret[1];
    request.offset = offset_;
    request.generation = generation_;
    return request;
  }
  // The reply's error, or -1 if the server hung up.
  int Ask(int fd, const IpcRequest& request) {
    IpcReply reply;
    int passed = -1;
    Status status = Exchange(fd, request, Deadline::AfterMs(kDeadlineMs), &reply, &passed);
    CloseTracked(passed);
    return status.ok() ? reply.error : -1;
  }
  bool HungUp(int fd) {
    pollfd entry{fd, POLLRDHUP, 0};
    return poll(&entry, 1, static_cast<int>(kDeadlineMs)) == 1;
  }
  int64_t Active() {
    orMemStats stats{};
    allocator_->ReadStats(&stats);
    return stats.all.active.current;
  }
  // The server still does what it should.
  void ExpectAlive() {
    int fd = Connect();
    EXPECT_EQ(Ask(fd, Request(IpcOperation::kOpenDevice)), orSuccess);
    CloseTracked(fd);
  }

  std::unique_ptr<AddressSpace> space_ = std::make_unique<AddressSpace>();
  Arena arena_;
  MemoryBudget budget_{uint64_t{64} << 20};
  std::unique_ptr<BlockAllocator> allocator_;
  std::unique_ptr<IpcServer> server_;
  IpcHandle handle_;
  void* block_ = nullptr;
  uint64_t offset_ = 0, generation_ = 0;
};

TEST_F(IpcServerTest, GarbageIsHungUpOn) {
  std::mt19937 random(4711);
  for (int i = 0; i < 50; ++i) {
    int fd = Connect();
    unsigned char bytes[sizeof(IpcRequest)];
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    EXPECT_EQ(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof bytes));
    EXPECT_TRUE(HungUp(fd));
    CloseTracked(fd);
  }
  ExpectAlive();
}

TEST_F(IpcServerTest, WrongSecretIsHungUpOn) {
  for (int bit = 0; bit < 128; bit += 9) {
    int fd = Connect();
    IpcRequest request = Request(IpcOperation::kOpenDevice);
    request.secret[bit / 64] ^= uint64_t{1} << (bit % 64);
    EXPECT_EQ(Ask(fd, request), -1);
    CloseTracked(fd);
  }
  ExpectAlive();
}

TEST_F(IpcServerTest, FieldsOutOfRangeAreRefused) {
  int fd = Connect();
  IpcRequest request = Request(IpcOperation::kOpenDevice);
  request.device = 1;
  EXPECT_EQ(Ask(fd, request), orErrorInvalidValue);
  request = Request(static_cast<IpcOperation>(7));
  EXPECT_EQ(Ask(fd, request), orErrorInvalidValue);
  for (uint64_t offset : {UINT64_MAX, uint64_t{1}, offset_ + 512, arena_.size()}) {
    request = Request(IpcOperation::kRetainMemory);
    request.offset = offset;
    EXPECT_EQ(Ask(fd, request), orErrorInvalidResourceHandle) << offset;
  }
  for (IpcOperation operation : {IpcOperation::kReleaseMemory, IpcOperation::kReleaseEvent,
                                 IpcOperation::kRetainEvent, IpcOperation::kOpenEvents}) {
    EXPECT_EQ(Ask(fd, Request(operation)), orErrorInvalidResourceHandle);
  }
  CloseTracked(fd);
  ExpectAlive();
}

TEST_F(IpcServerTest, ReleasesNoMoreThanWasRetained) {
  int holder = Connect(), other = Connect();
  EXPECT_EQ(Ask(holder, Request(IpcOperation::kRetainMemory)), orSuccess);
  ASSERT_TRUE(allocator_->Free(block_, false).ok());
  EXPECT_EQ(Ask(other, Request(IpcOperation::kReleaseMemory)), orErrorInvalidResourceHandle);
  EXPECT_EQ(Active(), 1);
  EXPECT_EQ(Ask(holder, Request(IpcOperation::kReleaseMemory)), orSuccess);
  EXPECT_EQ(Active(), 0);
  EXPECT_EQ(Ask(holder, Request(IpcOperation::kReleaseMemory)), orErrorInvalidResourceHandle);
  CloseTracked(holder);
  CloseTracked(other);
}

TEST_F(IpcServerTest, ClosingReleases) {
  int fd = Connect();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(fd, Request(IpcOperation::kRetainMemory)), orSuccess);
  ASSERT_TRUE(allocator_->Free(block_, false).ok());
  EXPECT_EQ(Active(), 1);
  CloseTracked(fd);
  Deadline deadline = Deadline::AfterMs(kDeadlineMs);
  while (Active() != 0 && !deadline.Passed()) poll(nullptr, 0, 1);
  EXPECT_EQ(Active(), 0);
}

TEST_F(IpcServerTest, PartialMessagesDoNotHoldUpOthers) {
  std::vector<int> slow;
  IpcRequest request = Request(IpcOperation::kOpenDevice);
  for (int i = 0; i < 20; ++i) {
    slow.push_back(Connect());
    EXPECT_EQ(send(slow.back(), &request, 7, MSG_NOSIGNAL), 7);
  }
  ExpectAlive();
  // The rest of a message makes it whole.
  send(slow[3], reinterpret_cast<char*>(&request) + 7, sizeof request - 7, MSG_NOSIGNAL);
  pollfd entry{slow[3], POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, static_cast<int>(kDeadlineMs)), 1);
  for (int fd : slow) CloseTracked(fd);
  ExpectAlive();
}

TEST_F(IpcServerTest, TooManyStrangersAreTurnedAway) {
  std::vector<int> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Connect());
  EXPECT_TRUE(HungUp(strangers.back())) << "silent connections are limited";
  for (int fd : strangers) CloseTracked(fd);
  // The server notices the ends in its own time; until then a newcomer may be turned away.
  Deadline deadline = Deadline::AfterMs(kDeadlineMs);
  bool served = false;
  while (!served && !deadline.Passed()) {
    int fd = Connect();
    served = Ask(fd, Request(IpcOperation::kOpenDevice)) == orSuccess;
    CloseTracked(fd);
  }
  EXPECT_TRUE(served);
}

TEST_F(IpcServerTest, APeerThatDoesNotReadIsDropped) {
  int fd = Connect();
  IpcRequest request = Request(IpcOperation::kOpenDevice);
  bool dropped = false;
  for (int i = 0; i < 2000000 && !dropped; ++i) {
    ssize_t sent = send(fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(sizeof request)) continue;
    pollfd entry{fd, POLLOUT | POLLRDHUP, 0};
    ASSERT_EQ(poll(&entry, 1, static_cast<int>(kDeadlineMs)), 1);
    dropped = (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (sent > 0) break;  // a torn message: the rest makes no sense
  }
  CloseTracked(fd);
  ExpectAlive();
}

}  // namespace
}  // namespace openreg
