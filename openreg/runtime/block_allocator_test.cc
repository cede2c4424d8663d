#include "openreg/runtime/block_allocator.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

// A clock that the test moves: work is issued and completed by hand.
class TestClock : public StreamClock {
 public:
  void Issue() { issued_.fetch_add(1); }
  void CompleteAll() { completed_.store(issued_.load()); }
};

class BlockAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(space_->Reserve().ok());
    ASSERT_TRUE(Arena::Create(space_.get(), 0, size_t{1} << 30, &arena_).ok());
    AllocatorEnvironment environment;
    environment.busy_streams = [this](std::vector<Position>* positions) {
      for (const TestClock* clock : {&first_, &second_}) {
        if (!clock->Idle()) positions->push_back({clock, clock->issued()});
      }
    };
    environment.trim_others = [this](int) { ++trims_; };
    allocator_ = std::make_unique<BlockAllocator>(0, arena_, &budget_, std::move(environment));
    ASSERT_TRUE(allocator_->Init().ok());
  }
  void TearDown() override {
    allocator_.reset();
    space_->Unmap(arena_.region);
    CloseTracked(arena_.fd);
  }

  void* Allocate(size_t size, const StreamClock* clock) {
    void* ptr = nullptr;
    Status status = allocator_->Allocate(size, allocator_->PoolFor(clock), &ptr);
    EXPECT_TRUE(status.ok()) << status.message();
    return ptr;
  }
  void Free(void* ptr) {
    Status status = allocator_->Free(ptr, /*everywhere=*/false);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  orMemStats AllStats() {
    orMemStats stats{};
    allocator_->ReadStats(&stats);
    return stats;
  }
  orMemPoolStats Stats() { return AllStats().all; }

  std::unique_ptr<AddressSpace> space_ = std::make_unique<AddressSpace>();
  Arena arena_;
  MemoryBudget budget_{256 * kMegabyte};
  TestClock first_, second_;
  int trims_ = 0;
  std::unique_ptr<BlockAllocator> allocator_;
};

TEST_F(BlockAllocatorTest, SmallBlocksShareASegment) {
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(Allocate(10000, &first_));
  EXPECT_EQ(Stats().segment.current, 1);
  for (void* ptr : blocks) Free(ptr);
  allocator_->Trim();
  EXPECT_EQ(Stats().segment.current, 0);
  EXPECT_EQ(budget_.used(), 0u);
}

TEST_F(BlockAllocatorTest, TakesPagesAtOnceWhereItIsTold) {
  const auto taken_bytes = [&] {
    struct stat info{};
    EXPECT_EQ(fstat(arena_.fd, &info), 0);
    return static_cast<size_t>(info.st_blocks) * 512;
  };
  void* before = Allocate(12 * kMegabyte, &first_);
  void* returned = Allocate(16 * kMegabyte, &first_);
  Free(returned);
  allocator_->Trim();
  EXPECT_EQ(taken_bytes(), 0u) << "nobody has touched anything";
  ASSERT_TRUE(allocator_->TakePagesAtOnce());
  EXPECT_EQ(taken_bytes(), 12 * kMegabyte);
  void* after = Allocate(32 * kMegabyte, &second_);
  EXPECT_EQ(taken_bytes(), 44 * kMegabyte);
  Free(before);
  Free(after);
  allocator_->Trim();
  EXPECT_EQ(taken_bytes(), 0u);
}

TEST_F(BlockAllocatorTest, FreedNeighboursJoin) {
  // Sizes above the front caches', so that every free reaches the pool.
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(Allocate(100 * 1024, &first_));
  for (size_t i = 0; i < blocks.size(); i += 2) Free(blocks[i]);
  for (size_t i = 1; i < blocks.size(); i += 2) Free(blocks[i]);
  EXPECT_EQ(Stats().inactiveSplit.current, 0) << "one whole free segment again";
  void* whole = Allocate(kSmallLimit, &first_);
  EXPECT_EQ(Stats().segment.current, 1);
  Free(whole);
}

TEST_F(BlockAllocatorTest, BestFitTakesTheSmallestHole) {
  void* a = Allocate(250 * 1024, &first_);
  void* separator = Allocate(70 * 1024, &first_);
  void* b = Allocate(150 * 1024, &first_);
  void* end = Allocate(70 * 1024, &first_);
  Free(a);
  Free(b);
  EXPECT_EQ(Allocate(140 * 1024, &first_), b);
  Free(b);
  Free(separator);
  Free(end);
}

TEST_F(BlockAllocatorTest, PoolsOfStreamsAreSeparate) {
  first_.Issue();
  void* ptr = Allocate(4 * kMegabyte, &first_);
  Free(ptr);
  EXPECT_NE(Allocate(4 * kMegabyte, &second_), ptr);
}

TEST_F(BlockAllocatorTest, SegmentsMoveToAnotherStreamWhenTheirsHasPassed) {
  first_.Issue();
  void* ptr = Allocate(4 * kMegabyte, &first_);
  Free(ptr);
  first_.CompleteAll();
  EXPECT_EQ(Allocate(4 * kMegabyte, &second_), ptr);
  EXPECT_EQ(Stats().segment.current, 1);
  Free(ptr);
}

TEST_F(BlockAllocatorTest, TrimKeepsWhatAStreamMayStillUse) {
  first_.Issue();
  Free(Allocate(4 * kMegabyte, &first_));
  allocator_->Trim();
  EXPECT_EQ(Stats().segment.current, 1);
  first_.CompleteAll();
  allocator_->Trim();
  EXPECT_EQ(Stats().segment.current, 0);
}

TEST_F(BlockAllocatorTest, AnEndedStreamsPoolIsInherited) {
  for (int i = 0; i < 5; ++i) first_.Issue();
  first_.CompleteAll();
  Pool* pool = allocator_->PoolFor(&first_);
  void* ptr = Allocate(1000, &first_);
  Free(ptr);
  Free(Allocate(4 * kMegabyte, &first_));
  allocator_->StreamEnded(&first_);
  EXPECT_EQ(allocator_->PoolFor(&second_), pool);
  EXPECT_EQ(Allocate(1000, &second_), ptr);
  Free(ptr);
  allocator_->Trim();
  EXPECT_EQ(Stats().segment.current, 0) << "numbers of the old stream must not hold memory";
}

TEST_F(BlockAllocatorTest, RecordedUsesHoldTheBlock) {
  void* ptr = Allocate(1000, &first_);
  second_.Issue();
  ASSERT_TRUE(allocator_->RecordUse(ptr, &second_).ok());
  ASSERT_TRUE(allocator_->RecordUse(ptr, &second_).ok());
  ASSERT_TRUE(allocator_->RecordUse(ptr, &first_).ok());
  Free(ptr);
  EXPECT_EQ(Stats().active.current, 1);
  EXPECT_EQ(Stats().allocation.current, 0);
  second_.CompleteAll();
  EXPECT_EQ(Stats().active.current, 0);
  EXPECT_EQ(Stats().active.freed, 1);
}

TEST_F(BlockAllocatorTest, FreeEverywhereWaitsForAllStreams) {
  void* ptr = Allocate(1000, nullptr);
  first_.Issue();
  second_.Issue();
  ASSERT_TRUE(allocator_->Free(ptr, /*everywhere=*/true).ok());
  first_.CompleteAll();
  EXPECT_EQ(Stats().active.current, 1);
  second_.CompleteAll();
  EXPECT_EQ(Stats().active.current, 0);
}

TEST_F(BlockAllocatorTest, RetainExactWantsTheRightGeneration) {
  void* ptr = Allocate(1000, &first_);
  AllocationInfo info;
  ASSERT_TRUE(allocator_->Find(ptr, &info));
  uint64_t size = 0;
  EXPECT_FALSE(allocator_->RetainExact(info.offset, info.generation + 1, &size));
  EXPECT_FALSE(allocator_->RetainExact(info.offset + 512, info.generation, &size));
  EXPECT_FALSE(allocator_->RetainExact(SIZE_MAX, info.generation, &size));
  EXPECT_FALSE(allocator_->RetainExact(arena_.size(), info.generation, &size));
  EXPECT_TRUE(allocator_->RetainExact(info.offset, info.generation, &size));
  EXPECT_EQ(size, 1000u);
  Free(ptr);
  EXPECT_FALSE(allocator_->RetainExact(info.offset, info.generation + 1, &size));
  EXPECT_TRUE(allocator_->RetainExact(info.offset, info.generation, &size)) << "retained still";
  EXPECT_TRUE(allocator_->Release(ptr).ok());
  EXPECT_EQ(Stats().active.current, 1);
  EXPECT_TRUE(allocator_->Release(ptr).ok());
  EXPECT_EQ(Stats().active.current, 0);
  EXPECT_FALSE(allocator_->RetainExact(info.offset, info.generation, &size));
  EXPECT_EQ(Allocate(1000, &first_), ptr);
  EXPECT_FALSE(allocator_->RetainExact(info.offset, info.generation, &size)) << "another one now";
  Free(ptr);
}

TEST_F(BlockAllocatorTest, LimitIsKeptAndCachesAreGivenUpForIt) {
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(Allocate(20 * kMegabyte, &first_));
  for (void* ptr : blocks) Free(ptr);
  void* ptr = Allocate(250 * kMegabyte, &second_);
  EXPECT_EQ(AllStats().numAllocRetries, 1);
  EXPECT_EQ(trims_, 1);
  void* more = nullptr;
  Status status = allocator_->Allocate(10 * kMegabyte, allocator_->PoolFor(&first_), &more);
  EXPECT_EQ(status.code(), orErrorMemoryAllocation);
  EXPECT_NE(std::string(status.message()).find("250.00 MiB"), std::string::npos)
      << status.message();
  Free(ptr);
}

TEST_F(BlockAllocatorTest, TouchedMemoryIsReusedFirst) {
  void* ptr = Allocate(kMegabyte, &first_);
  Free(ptr);
  for (int i = 0; i < 100; ++i) {
    void* next = Allocate(kMegabyte - static_cast<size_t>(i) * 512, &first_);
    EXPECT_EQ(next, ptr);
    Free(next);
  }
}

// Threads allocate, free for each other, record, retain and trim at random; blocks are marked, so
// two owners of one block would see each other's mark.
TEST_F(BlockAllocatorTest, SurvivesThreadsAtRandom) {
  constexpr int kThreads = 4, kRounds = 3000, kSlots = 64;
  std::vector<std::atomic<void*>> slots(kSlots);
  std::atomic<int> overlaps{0};
  Pool* pools[] = {allocator_->PoolFor(&first_), allocator_->PoolFor(&second_),
                   allocator_->PoolFor(nullptr)};
  ptrdiff_t delta = space_->delta();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(20260 + t));
      for (int i = 0; i < kRounds; ++i) {
        std::atomic<void*>& slot = slots[random() % kSlots];
        void* old = slot.exchange(nullptr);
        if (old != nullptr) {
          // Its own address is a block's mark.
          if (*reinterpret_cast<void**>(static_cast<char*>(old) + delta) != old) ++overlaps;
          bool retained = random() % 8 == 0 && allocator_->Retain(old).ok();
          if (random() % 8 == 0) (void)allocator_->RecordUse(old, &second_);
          if (!allocator_->Free(old, random() % 4 == 0).ok()) ++overlaps;
          if (retained && !allocator_->Release(old).ok()) ++overlaps;
        }
        void* ptr = nullptr;
        size_t size = sizeof(void*) + random() % (size_t{1} << (3 + random() % 18));
        if (!allocator_->Allocate(size, pools[random() % 3], &ptr).ok()) continue;
        *reinterpret_cast<void**>(static_cast<char*>(ptr) + delta) = ptr;
        void* expected = nullptr;
        if (!slot.compare_exchange_strong(expected, ptr)) Free(ptr);
        if (random() % 500 == 0) allocator_->Trim();
        if (random() % 100 == 0) first_.Issue();
        if (random() % 50 == 0) first_.CompleteAll();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overlaps, 0);
  for (auto& slot : slots) {
    if (slot.load() != nullptr) Free(slot.load());
  }
  first_.CompleteAll();
  allocator_->Trim();
  orMemPoolStats stats = Stats();
  EXPECT_EQ(stats.active.current, 0);
  EXPECT_EQ(stats.inactiveSplitBytes.current, 0);
  EXPECT_EQ(stats.reservedBytes.current, 0);
  EXPECT_EQ(budget_.used(), 0u);
}

}  // namespace
}  // namespace openreg
