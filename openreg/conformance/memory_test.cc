// Device memory: allocation, frees in stream order, limits, statistics, pinned memory, pointers.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "openreg/conformance/conformance.h"

namespace openreg_conformance {
namespace {

orMemStats AllStats(int device = 0) {
  orMemStats stats{};
  stats.structSize = sizeof stats;
  EXPECT_TRUE(Succeeds(orMemGetStats(device, &stats)));
  return stats;
}

orMemPoolStats Stats(int device = 0) { return AllStats(device).all; }

// Every way to allocate and free, in one signature.
struct Kind {
  const char* name;
  orError_t (*allocate)(void** ptr, size_t size);
  orError_t (*free)(void* ptr);
};
const Kind kKinds[] = {
    {"orMalloc", orMalloc, orFree},
    {"orMallocAsync", [](void** ptr, size_t size) { return orMallocAsync(ptr, size, nullptr); },
     orFreeAsync},
};
class Memory : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Memory, testing::ValuesIn(kKinds),
                         [](const auto& its) { return std::string(its.param.name); });

TEST_P(Memory, IsAlignedAndUsableByKernels) {
  for (size_t size : {size_t{1}, size_t{511}, size_t{513}, size_t{4096}, size_t{100000},
                      size_t{1} << 20, (size_t{1} << 20) + 1, size_t{30} << 20}) {
    void* ptr = nullptr;
    OR_ASSERT_OK(GetParam().allocate(&ptr, size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % 512, 0u);
    std::memset(KernelPointer(ptr), 0x5a, size);
    unsigned char last = 0;
    OR_ASSERT_OK(orMemcpy(&last, static_cast<char*>(ptr) + size - 1, 1, orMemcpyDeviceToHost));
    EXPECT_EQ(last, 0x5a);
    OR_ASSERT_OK(GetParam().free(ptr));
  }
}

TEST_P(Memory, ZeroBytesAreNull) {
  void* ptr = &ptr;
  OR_ASSERT_OK(GetParam().allocate(&ptr, 0));
  EXPECT_EQ(ptr, nullptr);
  OR_EXPECT_OK(GetParam().free(nullptr));
}

TEST_P(Memory, BadSizesAreRefused) {
  void* ptr = nullptr;
  OR_EXPECT_ERROR(orErrorInvalidValue, GetParam().allocate(&ptr, static_cast<size_t>(-1)));
  OR_EXPECT_ERROR(orErrorInvalidValue, GetParam().allocate(&ptr, static_cast<size_t>(-4096)));
  OR_EXPECT_ERROR(orErrorMemoryAllocation, GetParam().allocate(&ptr, size_t{1} << 60));
  EXPECT_EQ(ptr, nullptr) << "out-parameters are written on success only";
}

TEST_P(Memory, BadFreesAreRecognised) {
  void* ptr = nullptr;
  OR_ASSERT_OK(GetParam().allocate(&ptr, 4096));
  char* start = static_cast<char*>(ptr);
  int local = 0;
  auto heap = std::make_unique<char[]>(4096);
  for (void* bad : {static_cast<void*>(start + 512), static_cast<void*>(start + 1),
                    static_cast<void*>(&local), static_cast<void*>(heap.get()),
                    static_cast<void*>(KernelPointer(start)), reinterpret_cast<void*>(0x10)}) {
    OR_EXPECT_ERROR(orErrorInvalidDevicePointer, GetParam().free(bad));
  }
  OR_ASSERT_OK(GetParam().free(ptr));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, GetParam().free(ptr));
}

// Random sizes in random order; live blocks never overlap and keep their contents.
TEST_P(Memory, BlocksNeverOverlap) {
  constexpr unsigned kSeed = 20261;
  std::mt19937 random(kSeed);
  struct Live {
    char* ptr;
    size_t size;
    unsigned char mark;
  };
  std::vector<Live> live;
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 200 && (live.empty() || random() % 5 < 3)) {
      size_t size = 1 + random() % (size_t{1} << (random() % 22));
      void* ptr = nullptr;
      OR_ASSERT_OK(GetParam().allocate(&ptr, size));
      auto mark = static_cast<unsigned char>(random());
      std::memset(KernelPointer(ptr), mark, size);
      live.push_back({static_cast<char*>(ptr), size, mark});
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Live& victim = live.back();
      char* bytes = KernelPointer(victim.ptr);
      ASSERT_EQ(static_cast<unsigned char>(bytes[0]), victim.mark) << "seed " << kSeed;
      ASSERT_EQ(static_cast<unsigned char>(bytes[victim.size - 1]), victim.mark);
      ASSERT_EQ(std::memcmp(bytes, bytes + 1, victim.size - 1), 0);
      OR_ASSERT_OK(GetParam().free(victim.ptr));
      live.pop_back();
    }
  }
  for (const Live& block : live) OR_ASSERT_OK(GetParam().free(block.ptr));
}

TEST_P(Memory, ManyThreadsAllocateAtOnce) {
  constexpr int kThreads = 8;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<char*, size_t>> live;
      for (int i = 0; i < 2000; ++i) {
        if (live.size() < 20) {
          size_t size = 1 + random() % (size_t{1} << (random() % 18));
          void* ptr = nullptr;
          OR_ASSERT_OK(GetParam().allocate(&ptr, size));
          std::memset(KernelPointer(ptr), t, size);
          live.push_back({static_cast<char*>(ptr), size});
        } else {
          auto [ptr, size] = live[random() % live.size()];
          if (KernelPointer(ptr)[size - 1] != t) ++wrong;
          std::swap(*std::find(live.begin(), live.end(), std::pair(ptr, size)), live.back());
          live.pop_back();
          OR_ASSERT_OK(GetParam().free(ptr));
        }
      }
      for (auto [ptr, size] : live) OR_ASSERT_OK(GetParam().free(ptr));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Stats().allocation.current, 0);
}

long MappingCount() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  long count = 0;
  while (std::getline(maps, line)) ++count;
  return count;
}

long EntryCount(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

TEST_P(Memory, ManyAllocationsLeaveTheProcessWhereItWas) {
  auto round = [] {
    std::vector<void*> blocks;
    for (int i = 0; i < 10000; ++i) {
      void* ptr = nullptr;
      OR_ASSERT_OK(GetParam().allocate(&ptr, static_cast<size_t>(1 + i % 3000)));
      blocks.push_back(ptr);
      if (i % 2 == 1) {
        OR_ASSERT_OK(GetParam().free(blocks[static_cast<size_t>(i / 2)]));
        blocks[static_cast<size_t>(i / 2)] = nullptr;
      }
    }
    for (void* ptr : blocks) OR_ASSERT_OK(GetParam().free(ptr));
    OR_ASSERT_OK(orMemEmptyCache(0));
  };
  round();
  orMemPoolStats before = Stats();
  long mappings = MappingCount();
  long descriptors = EntryCount("/proc/self/fd"), threads = EntryCount("/proc/self/task");
  for (int i = 0; i < 3; ++i) round();
  orMemPoolStats after = Stats();
  EXPECT_EQ(after.reservedBytes.current, before.reservedBytes.current);
  EXPECT_EQ(after.reservedBytes.current, 0);
  EXPECT_EQ(after.allocatedBytes.current, 0);
  // malloc and the sanitizers map memory of their own now and then; a leak would count thousands.
  EXPECT_LE(MappingCount(), mappings + 16);
  EXPECT_EQ(EntryCount("/proc/self/fd"), descriptors);
  EXPECT_EQ(EntryCount("/proc/self/task"), threads);
}

// ---------------------------------------------------------------------------- stream order

TEST(StreamMemory, IsReusedAtOnceOnItsOwnStream) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  void *first = nullptr, *second = nullptr;
  OR_ASSERT_OK(orMallocAsync(&first, 70000, stream));
  OR_ASSERT_OK(orFreeAsync(first));
  OR_ASSERT_OK(orMallocAsync(&second, 70000, stream));
  EXPECT_EQ(first, second);
  OR_ASSERT_OK(orFreeAsync(second));
  gate.Open();
}

TEST(StreamMemory, IsNotReusedByOthersBeforeItsStreamHasPassed) {
  Stream owner, other;
  Gate gate;
  gate.Block(owner);
  std::vector<void*> freed;
  for (int i = 0; i < 8; ++i) {
    void* ptr = nullptr;
    OR_ASSERT_OK(orMallocAsync(&ptr, size_t{2} << 20, owner));
    freed.push_back(ptr);
  }
  for (void* ptr : freed) OR_ASSERT_OK(orFreeAsync(ptr));
  OR_ASSERT_OK(orMemEmptyCache(0));  // must not give away what `owner` may still use
  std::vector<void*> mine;
  for (int i = 0; i < 8; ++i) {
    void* ptr = nullptr;
    OR_ASSERT_OK(orMallocAsync(&ptr, size_t{2} << 20, other));
    for (void* theirs : freed) EXPECT_NE(ptr, theirs);
    mine.push_back(ptr);
  }
  gate.Open();
  for (void* ptr : mine) OR_ASSERT_OK(orFreeAsync(ptr));
}

TEST(StreamMemory, RecordedStreamDelaysReuse) {
  Stream owner, user;
  Gate gate;
  void *ptr = nullptr, *next = nullptr;
  OR_ASSERT_OK(orMallocAsync(&ptr, 3333, owner));
  gate.Block(user);
  OR_ASSERT_OK(orMemRecordStream(static_cast<char*>(ptr) + 100, user));
  OR_ASSERT_OK(orFreeAsync(ptr));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orFreeAsync(ptr));
  EXPECT_EQ(Stats().active.current, Stats().allocation.current + 1);
  OR_ASSERT_OK(orMallocAsync(&next, 3333, owner));
  EXPECT_NE(next, ptr);
  gate.Open();
  ASSERT_TRUE(Drains(user));
  EXPECT_EQ(Stats().active.current, Stats().allocation.current);
  void* again = nullptr;
  OR_ASSERT_OK(orMallocAsync(&again, 3333, owner));
  EXPECT_EQ(again, ptr);
  OR_ASSERT_OK(orFreeAsync(again));
  OR_ASSERT_OK(orFreeAsync(next));
}

TEST(StreamMemory, FreeWaitsForAllStreamsWithoutBlocking) {
  Stream stream;
  Gate gate;
  void *ptr = nullptr, *next = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 5000));
  gate.Block(stream);
  OR_ASSERT_OK(orFree(ptr));
  OR_ASSERT_OK(orMalloc(&next, 5000));
  EXPECT_NE(next, ptr);
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  OR_ASSERT_OK(orFree(next));
}

TEST(StreamMemory, RetainedMemoryIsNotReused) {
  Stream stream;
  void *ptr = nullptr, *next = nullptr;
  OR_ASSERT_OK(orMallocAsync(&ptr, 7000, stream));
  OR_ASSERT_OK(orMemRetain(static_cast<char*>(ptr) + 6999));
  OR_ASSERT_OK(orMemRetain(ptr));
  OR_ASSERT_OK(orFreeAsync(ptr));
  for (int i = 0; i < 2; ++i) {
    OR_ASSERT_OK(orMallocAsync(&next, 7000, stream));
    EXPECT_NE(next, ptr);
    OR_ASSERT_OK(orFreeAsync(next));
    OR_ASSERT_OK(orMemRelease(ptr));
  }
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRelease(ptr));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRetain(ptr));
  std::set<void*> seen;
  for (int i = 0; i < 2; ++i) {
    OR_ASSERT_OK(orMallocAsync(&next, 7000, stream));
    seen.insert(next);
  }
  EXPECT_EQ(seen.count(ptr), 1u);
  for (void* block : seen) OR_ASSERT_OK(orFreeAsync(block));
}

TEST(StreamMemory, OutlivesItsStream) {
  void* ptr = nullptr;
  {
    Stream stream;
    OR_ASSERT_OK(orMallocAsync(&ptr, 1000, stream));
  }
  std::memset(KernelPointer(ptr), 1, 1000);
  OR_EXPECT_OK(orFreeAsync(ptr));
}

TEST(StreamMemory, BadArgumentsAreRecognised) {
  int local = 0;
  void* ptr = nullptr;
  auto bad = reinterpret_cast<orStream_t>(&local);
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orMallocAsync(&ptr, 10, bad));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRecordStream(&local, nullptr));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRetain(&local));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRelease(&local));
}

// ---------------------------------------------------------------------------- statistics

TEST(MemoryStats, FollowAllocations) {
  OR_ASSERT_OK(orMemResetPeakStats(0));
  orMemPoolStats before = Stats();
  void *small = nullptr, *large = nullptr;
  OR_ASSERT_OK(orMallocAsync(&small, 1000, nullptr));
  OR_ASSERT_OK(orMallocAsync(&large, size_t{3} << 20, nullptr));
  orMemPoolStats during = Stats();
  EXPECT_EQ(during.allocation.current, before.allocation.current + 2);
  EXPECT_EQ(during.allocatedBytes.current, before.allocatedBytes.current + 1024 + (3 << 20));
  EXPECT_EQ(during.requestedBytes.current, before.requestedBytes.current + 1000 + (3 << 20));
  EXPECT_GE(during.reservedBytes.current, during.allocatedBytes.current);
  EXPECT_EQ(during.activeBytes.current, during.allocatedBytes.current);
  OR_ASSERT_OK(orFreeAsync(small));
  OR_ASSERT_OK(orFreeAsync(large));
  orMemPoolStats after = Stats();
  EXPECT_EQ(after.allocatedBytes.current, before.allocatedBytes.current);
  EXPECT_EQ(after.allocatedBytes.peak, during.allocatedBytes.current);
  EXPECT_EQ(after.activeBytes.peak, during.activeBytes.current);
  EXPECT_EQ(after.allocation.freed, before.allocation.freed + 2);
  EXPECT_EQ(after.allocation.allocated, before.allocation.allocated + 2);
  OR_ASSERT_OK(orMemResetPeakStats(0));
  EXPECT_EQ(Stats().allocatedBytes.peak, before.allocatedBytes.current);
  OR_ASSERT_OK(orMemResetAccumulatedStats(0));
  EXPECT_EQ(Stats().allocation.allocated, 0);
}

TEST(MemoryStats, AccountForAllReservedBytes) {
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) {
    void* ptr = nullptr;
    OR_ASSERT_OK(orMallocAsync(&ptr, static_cast<size_t>(1 + i * 997), nullptr));
    blocks.push_back(ptr);
  }
  for (size_t i = 0; i < blocks.size(); i += 2) OR_ASSERT_OK(orFreeAsync(blocks[i]));
  orMemPoolStats stats = Stats();
  EXPECT_GT(stats.inactiveSplit.current, 0);
  EXPECT_LE(stats.activeBytes.current + stats.inactiveSplitBytes.current,
            stats.reservedBytes.current);
  for (size_t i = 1; i < blocks.size(); i += 2) OR_ASSERT_OK(orFreeAsync(blocks[i]));
  OR_ASSERT_OK(orMemEmptyCache(0));
  stats = Stats();
  EXPECT_EQ(stats.inactiveSplit.current, 0);
  EXPECT_EQ(stats.inactiveSplitBytes.current, 0);
  EXPECT_EQ(stats.reservedBytes.current, 0);
  EXPECT_EQ(stats.segment.current, 0);
}

// The sum of both pools, for every statistic that adds up.
void ExpectSum(const orMemStat& all, const orMemStat& small, const orMemStat& large) {
  EXPECT_EQ(all.current, small.current + large.current);
  EXPECT_EQ(all.allocated, small.allocated + large.allocated);
  EXPECT_EQ(all.freed, small.freed + large.freed);
  EXPECT_LE(all.peak, small.peak + large.peak);
  EXPECT_GE(all.peak, std::max(small.peak, large.peak));
}

TEST(MemoryStats, SmallAndLargeAllocationsAreCountedApart) {
  OR_ASSERT_OK(orMemEmptyCache(0));
  OR_ASSERT_OK(orMemResetPeakStats(0));
  orMemStats before = AllStats();
  void *small = nullptr, *largest_small = nullptr, *large = nullptr;
  OR_ASSERT_OK(orMallocAsync(&small, 1000, nullptr));
  OR_ASSERT_OK(orMallocAsync(&largest_small, size_t{1} << 18, nullptr));
  OR_ASSERT_OK(orMallocAsync(&large, (size_t{1} << 18) + 1, nullptr));
  orMemStats during = AllStats();
  EXPECT_EQ(during.smallPool.allocation.current, before.smallPool.allocation.current + 2);
  EXPECT_EQ(during.largePool.allocation.current, before.largePool.allocation.current + 1);
  EXPECT_EQ(during.smallPool.requestedBytes.current,
            before.smallPool.requestedBytes.current + 1000 + (1 << 18));
  EXPECT_EQ(during.largePool.requestedBytes.current,
            before.largePool.requestedBytes.current + (1 << 18) + 1);
  EXPECT_GT(during.smallPool.segment.current, before.smallPool.segment.current);
  EXPECT_GT(during.largePool.reservedBytes.current, before.largePool.reservedBytes.current);
  for (void* ptr : {small, largest_small, large}) OR_ASSERT_OK(orFreeAsync(ptr));
  orMemStats after = AllStats();
  for (const orMemStats& stats : {before, during, after}) {
    const orMemPoolStats &all = stats.all, &little = stats.smallPool, &big = stats.largePool;
    ExpectSum(all.allocation, little.allocation, big.allocation);
    ExpectSum(all.allocatedBytes, little.allocatedBytes, big.allocatedBytes);
    ExpectSum(all.requestedBytes, little.requestedBytes, big.requestedBytes);
    ExpectSum(all.active, little.active, big.active);
    ExpectSum(all.activeBytes, little.activeBytes, big.activeBytes);
    ExpectSum(all.inactiveSplit, little.inactiveSplit, big.inactiveSplit);
    ExpectSum(all.inactiveSplitBytes, little.inactiveSplitBytes, big.inactiveSplitBytes);
    EXPECT_EQ(all.segment.current, little.segment.current + big.segment.current);
    EXPECT_EQ(all.reservedBytes.current, little.reservedBytes.current + big.reservedBytes.current);
  }
  EXPECT_EQ(after.smallPool.allocation.peak, during.smallPool.allocation.current);
}

TEST(MemoryStats, StructSizeIsChecked) {
  orMemStats stats{};
  stats.structSize = 8;
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemGetStats(0, &stats));
}

TEST(MemoryStats, FreeMemoryFollowsReservations) {
  size_t free = 0, total = 0, free_now = 0;
  OR_ASSERT_OK(orMemEmptyCache(0));
  OR_ASSERT_OK(orMemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, size_t{16} << 20));
  OR_ASSERT_OK(orMemGetInfo(&free_now, &total));
  EXPECT_EQ(free_now + (size_t{16} << 20), free);
  OR_ASSERT_OK(orFree(ptr));
  OR_ASSERT_OK(orMemGetInfo(&free_now, &total));
  EXPECT_EQ(free_now, free) << "cached memory counts as free";
}

// ---------------------------------------------------------------------------- limits

TEST(MemoryLimit, IsReportedWithFigures) {
  size_t free = 0, total = 0;
  OR_ASSERT_OK(orMemGetInfo(&free, &total));
  int64_t refused = AllStats().numOoms;
  void* ptr = nullptr;
  OR_EXPECT_ERROR(orErrorMemoryAllocation, orMalloc(&ptr, total + 1));
  EXPECT_NE(std::string(orGetLastErrorMessage()).find("tried to allocate"), std::string::npos);
  EXPECT_EQ(AllStats().numOoms, refused + 1);
}

TEST(MemoryLimit, FractionIsALimit) {
  size_t free = 0, total = 0;
  OR_ASSERT_OK(orMemEmptyCache(0));
  OR_ASSERT_OK(orMemGetInfo(&free, &total));
  double megabytes = static_cast<double>(total) / (1 << 20);
  OR_ASSERT_OK(orMemSetFraction(0, 64 / megabytes));
  double fraction = 0;
  OR_ASSERT_OK(orMemGetFraction(0, &fraction));
  EXPECT_DOUBLE_EQ(fraction, 64 / megabytes);
  void *first = nullptr, *second = nullptr;
  OR_ASSERT_OK(orMallocAsync(&first, size_t{40} << 20, nullptr));
  OR_EXPECT_ERROR(orErrorMemoryAllocation, orMallocAsync(&second, size_t{40} << 20, nullptr));
  OR_ASSERT_OK(orFreeAsync(first));
  // The cached segment does not fit; it is given back to make room.
  OR_ASSERT_OK(orMallocAsync(&second, size_t{50} << 20, nullptr));
  OR_ASSERT_OK(orFreeAsync(second));
  for (double bad : {0.0, -1.0, 1.5, std::nan("")}) {
    OR_EXPECT_ERROR(orErrorInvalidValue, orMemSetFraction(0, bad));
  }
  OR_ASSERT_OK(orMemSetFraction(0, 1));
}

// ---------------------------------------------------------------------------- pointers

TEST(Pointer, DeviceAttributes) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 3000));
  char* inside = static_cast<char*>(ptr) + 2999;
  orPointerAttributes attributes;
  OR_ASSERT_OK(orPointerGetAttributes(&attributes, inside));
  EXPECT_EQ(attributes.type, orMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.devicePointer, inside);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  EXPECT_EQ(attributes.kernelPointer, KernelPointer(inside));
  EXPECT_EQ(attributes.base, ptr);
  EXPECT_EQ(attributes.size, 3000u);
  EXPECT_EQ(attributes.imported, 0);
  orArenaInfo arena;
  OR_ASSERT_OK(orDeviceGetArena(0, &arena));
  EXPECT_EQ(static_cast<char*>(arena.deviceBase) + attributes.arenaOffset, inside);
  EXPECT_EQ(KernelPointer(arena.deviceBase), arena.kernelBase);
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orPointerGetAttributes(&attributes, inside + 5000));
  OR_ASSERT_OK(orFree(ptr));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orPointerGetAttributes(&attributes, ptr));
}

TEST(Pointer, BlocksThatSpanManyChunksAreFoundInside) {
  constexpr size_t kSize = size_t{37} << 20;
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, kSize));
  for (size_t offset = 0; offset < kSize; offset += (size_t{1} << 20) - 4096 + 1) {
    orPointerAttributes attributes;
    OR_ASSERT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(ptr) + offset));
    EXPECT_EQ(attributes.base, ptr);
  }
  OR_ASSERT_OK(orFree(ptr));
}

TEST(Pointer, HostMemoryIsUnregistered) {
  int local = 0;
  orPointerAttributes attributes;
  for (const void* host : {static_cast<const void*>(&local), static_cast<const void*>(nullptr),
                           reinterpret_cast<const void*>(uintptr_t{0xffffffffffff})}) {
    OR_ASSERT_OK(orPointerGetAttributes(&attributes, host));
    EXPECT_EQ(attributes.type, orMemoryTypeUnregistered);
    EXPECT_EQ(attributes.device, -1);
    EXPECT_EQ(attributes.base, nullptr);
  }
}

TEST(Pinned, AllocatedMemory) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orHostAlloc(&ptr, 10000));
  std::memset(ptr, 7, 10000);
  orPointerAttributes attributes;
  OR_ASSERT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(ptr) + 9999));
  EXPECT_EQ(attributes.type, orMemoryTypeHost);
  EXPECT_EQ(attributes.base, ptr);
  EXPECT_EQ(attributes.size, 10000u);
  EXPECT_EQ(attributes.kernelPointer, static_cast<char*>(ptr) + 9999);
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostFree(static_cast<char*>(ptr) + 1));
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostUnregister(ptr));
  OR_ASSERT_OK(orHostFree(ptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostFree(ptr));
}

TEST(Pinned, RegisteredMemory) {
  std::vector<char> memory(10000);
  OR_ASSERT_OK(orHostRegister(memory.data() + 1000, 5000));
  orPointerAttributes attributes;
  OR_ASSERT_OK(orPointerGetAttributes(&attributes, memory.data() + 5999));
  EXPECT_EQ(attributes.type, orMemoryTypeHost);
  OR_ASSERT_OK(orPointerGetAttributes(&attributes, memory.data() + 6000));
  EXPECT_EQ(attributes.type, orMemoryTypeUnregistered);
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostRegister(memory.data(), 1001));
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostRegister(memory.data() + 5999, 10));
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostFree(memory.data() + 1000));
  OR_ASSERT_OK(orHostUnregister(memory.data() + 1000));
  OR_EXPECT_ERROR(orErrorInvalidValue, orHostUnregister(memory.data() + 1000));
}

TEST(HostAccess, ToDeviceMemoryFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        void* ptr = nullptr;
        if (orMalloc(&ptr, 8) == orSuccess) *static_cast<volatile int*>(ptr) = 1;
      },
      "");
  EXPECT_DEATH(
      {
        void* ptr = nullptr;
        if (orMalloc(&ptr, 8) == orSuccess) {
          volatile int value = *static_cast<volatile int*>(ptr);
          (void)value;
        }
      },
      "");
}

}  // namespace
}  // namespace openreg_conformance
