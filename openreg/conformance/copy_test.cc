// Copies and fills: kinds, bounds, stream order, pinned and pageable memory.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "openreg/conformance/conformance.h"

namespace openreg_conformance {
namespace {

// Device memory for one test.
class Buffer {
 public:
  explicit Buffer(size_t size) { EXPECT_TRUE(Succeeds(orMalloc(&ptr_, size))); }
  ~Buffer() { EXPECT_TRUE(Succeeds(orFree(ptr_))); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator void*() const { return ptr_; }
  char* at(size_t offset) const { return static_cast<char*>(ptr_) + offset; }

 private:
  void* ptr_ = nullptr;
};

std::vector<unsigned char> Pattern(size_t size) {
  std::vector<unsigned char> bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(size % 251));
  return bytes;
}

TEST(Copy, GoesThroughTheDeviceAndBack) {
  for (size_t size : {size_t{1}, size_t{63}, size_t{4097}, size_t{65536}, size_t{65537},
                      size_t{1} << 20, (size_t{9} << 20) + 13}) {
    std::vector<unsigned char> source = Pattern(size), target(size);
    Buffer first(size), second(size);
    OR_ASSERT_OK(orMemcpy(first, source.data(), size, orMemcpyHostToDevice));
    OR_ASSERT_OK(orMemcpy(second, first, size, orMemcpyDeviceToDevice));
    OR_ASSERT_OK(orMemcpy(target.data(), second, size, orMemcpyDefault));
    EXPECT_EQ(source, target) << size;
  }
}

TEST(Copy, BetweenDevices) {
  int count = 0;
  OR_ASSERT_OK(orGetDeviceCount(&count));
  if (count < 2) GTEST_SKIP() << "needs two devices";
  std::vector<unsigned char> source = Pattern(5000), target(5000);
  Buffer here(5000);
  OR_ASSERT_OK(orSetDevice(1));
  Buffer there(5000);
  OR_ASSERT_OK(orMemcpy(here, source.data(), 5000, orMemcpyDefault));
  OR_ASSERT_OK(orMemcpy(there, here, 5000, orMemcpyDeviceToDevice));
  OR_ASSERT_OK(orMemcpy(target.data(), there, 5000, orMemcpyDefault));
  OR_ASSERT_OK(orSetDevice(0));
  EXPECT_EQ(source, target);
}

TEST(Copy, UnalignedPieces) {
  std::vector<unsigned char> source = Pattern(1000), target(1000);
  Buffer buffer(1000);
  OR_ASSERT_OK(orMemcpy(buffer, source.data(), 1000, orMemcpyHostToDevice));
  OR_ASSERT_OK(orMemcpy(target.data(), buffer.at(333), 667, orMemcpyDeviceToHost));
  EXPECT_EQ(std::memcmp(target.data(), source.data() + 333, 667), 0);
}

TEST(Copy, LargeUnalignedPieces) {
  const size_t size = (size_t{16} << 20) + 4097;
  std::vector<unsigned char> source = Pattern(size + 200), target(size + 200);
  Buffer first(size + 200), second(size + 200);
  OR_ASSERT_OK(orMemcpy(first, source.data(), size + 200, orMemcpyHostToDevice));
  OR_ASSERT_OK(orMemset(second, 0xa5, size + 200));
  OR_ASSERT_OK(orMemcpy(second.at(61), first.at(130), size, orMemcpyDeviceToDevice));
  OR_ASSERT_OK(orMemcpy(target.data(), second, size + 200, orMemcpyDeviceToHost));
  const auto untouched = [](unsigned char byte) { return byte == 0xa5; };
  EXPECT_TRUE(std::all_of(target.begin(), target.begin() + 61, untouched));
  EXPECT_TRUE(std::equal(target.begin() + 61, target.end() - 139, source.begin() + 130));
  EXPECT_TRUE(std::all_of(target.end() - 139, target.end(), untouched));
}

TEST(Copy, KernelsCopyBetweenKernelAddresses) {
  ptrdiff_t delta;
  OR_ASSERT_OK(orGetKernelDelta(&delta));
  for (size_t size : {size_t{0}, size_t{1}, size_t{65}, (size_t{16} << 20) + 3}) {
    std::vector<unsigned char> source = Pattern(size + 7), target(size + 7);
    Buffer buffer(size + 7);
    orKernelMemcpy(buffer.at(5) + delta, source.data() + 2, size);
    orKernelMemcpy(target.data() + 3, buffer.at(5) + delta, size);
    EXPECT_TRUE(std::equal(target.begin() + 3, target.begin() + 3 + static_cast<ptrdiff_t>(size),
                           source.begin() + 2))
        << size;
  }
}

TEST(Copy, KindMustFitThePointers) {
  char host[64] = {};
  Buffer buffer(64);
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(buffer, host, 64, orMemcpyDeviceToHost));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(host, buffer, 64, orMemcpyHostToDevice));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(host, buffer, 64, orMemcpyHostToHost));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(buffer, host, 64, orMemcpyDeviceToDevice));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(buffer, host, 64, static_cast<orMemcpyKind>(7)));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemcpy(buffer, nullptr, 64, orMemcpyDefault));
}

TEST(Copy, RangesMustStayInTheirAllocation) {
  std::vector<char> host(10000);
  Buffer buffer(1000);
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer,
                  orMemcpy(buffer, host.data(), 1001, orMemcpyHostToDevice));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer,
                  orMemcpy(host.data(), buffer.at(999), 2, orMemcpyDeviceToHost));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemset(buffer.at(1), 0, 1000));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemset(host.data(), 0, 10));
  OR_EXPECT_ERROR(orErrorInvalidValue,
                  orMemcpy(buffer, host.data(), static_cast<size_t>(-1), orMemcpyDefault));
  void* freed = nullptr;
  OR_ASSERT_OK(orMalloc(&freed, 1000));
  OR_ASSERT_OK(orFree(freed));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer,
                  orMemcpy(freed, host.data(), 1000, orMemcpyHostToDevice));
}

TEST(Copy, NothingIsNoWork) {
  OR_EXPECT_OK(orMemcpy(nullptr, nullptr, 0, orMemcpyDefault));
  OR_EXPECT_OK(orMemcpyAsync(nullptr, nullptr, 0, orMemcpyDefault, nullptr));
  OR_EXPECT_OK(orMemset(nullptr, 0, 0));
}

TEST(Copy, FillSetsBytes) {
  Buffer buffer(5000);
  std::vector<unsigned char> target(5000);
  OR_ASSERT_OK(orMemset(buffer, 0x1ab, 5000));
  OR_ASSERT_OK(orMemset(buffer.at(10), 1, 20));
  OR_ASSERT_OK(orMemcpy(target.data(), buffer, 5000, orMemcpyDefault));
  EXPECT_EQ(target[9], 0xab);
  EXPECT_EQ(target[10], 1);
  EXPECT_EQ(target[29], 1);
  EXPECT_EQ(target[30], 0xab);
}

TEST(CopyAsync, PinnedMemoryDoesNotBlock) {
  constexpr size_t kSize = size_t{1} << 20;
  Stream stream;
  Gate gate;
  Buffer buffer(kSize);
  void* pinned = nullptr;
  OR_ASSERT_OK(orHostAlloc(&pinned, kSize));
  std::memset(pinned, 1, kSize);
  gate.Block(stream);
  OR_ASSERT_OK(orMemcpyAsync(buffer, pinned, kSize, orMemcpyHostToDevice, stream));
  OR_ASSERT_OK(orMemsetAsync(buffer, 2, kSize / 2, stream));
  OR_ASSERT_OK(orMemcpyAsync(pinned, buffer, kSize, orMemcpyDeviceToHost, stream));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  // Freed while in use: the memory stays until the copies have passed.
  unsigned char* bytes = static_cast<unsigned char*>(pinned);
  EXPECT_EQ(bytes[0], 1);
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  EXPECT_EQ(bytes[0], 2);
  EXPECT_EQ(bytes[kSize - 1], 1);
  OR_ASSERT_OK(orHostFree(pinned));
}

TEST(CopyAsync, PinnedMemoryMayBeFreedWhileInUse) {
  constexpr size_t kSize = size_t{1} << 20;
  Stream stream;
  Gate gate;
  Buffer buffer(kSize);
  void* pinned = nullptr;
  OR_ASSERT_OK(orHostAlloc(&pinned, kSize));
  std::memset(pinned, 9, kSize);
  gate.Block(stream);
  OR_ASSERT_OK(orMemcpyAsync(buffer, pinned, kSize, orMemcpyHostToDevice, stream));
  OR_ASSERT_OK(orHostFree(pinned));
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  unsigned char last = 0;
  OR_ASSERT_OK(orMemcpy(&last, buffer.at(kSize - 1), 1, orMemcpyDefault));
  EXPECT_EQ(last, 9);
}

TEST(CopyAsync, SmallPageableSourceIsTakenAtOnce) {
  Stream stream;
  Gate gate;
  Buffer buffer(1000);
  gate.Block(stream);
  {
    std::vector<unsigned char> source(1000, 5);
    OR_ASSERT_OK(orMemcpyAsync(buffer, source.data(), 1000, orMemcpyHostToDevice, stream));
    std::fill(source.begin(), source.end(), 0);
  }
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  unsigned char value = 0;
  OR_ASSERT_OK(orMemcpy(&value, buffer.at(999), 1, orMemcpyDefault));
  EXPECT_EQ(value, 5);
}

TEST(CopyAsync, PageableTargetIsFilledWhenTheCallReturns) {
  Stream stream;
  Buffer buffer(size_t{1} << 20);
  OR_ASSERT_OK(orMemsetAsync(buffer, 3, size_t{1} << 20, stream));
  std::vector<unsigned char> target(size_t{1} << 20);
  OR_ASSERT_OK(orMemcpyAsync(target.data(), buffer, target.size(), orMemcpyDeviceToHost, stream));
  EXPECT_EQ(target.front(), 3);
  EXPECT_EQ(target.back(), 3);
}

TEST(CopyAsync, IsInOrderWithKernels) {
  Stream stream;
  Gate gate;
  Buffer buffer(sizeof(int));
  auto* value = static_cast<int*>(static_cast<void*>(KernelPointer(buffer.at(0))));
  *value = 1;
  KernelOf add{[&] {
    *value += 1;
    return orSuccess;
  }};
  int* pinned = nullptr;
  OR_ASSERT_OK(orHostAlloc(reinterpret_cast<void**>(&pinned), 2 * sizeof(int)));
  gate.Block(stream);
  OR_ASSERT_OK(orLaunchKernel("add", add.Run, &add, stream));
  OR_ASSERT_OK(orMemcpyAsync(&pinned[0], buffer, sizeof(int), orMemcpyDeviceToHost, stream));
  OR_ASSERT_OK(orLaunchKernel("add", add.Run, &add, stream));
  OR_ASSERT_OK(orMemcpyAsync(&pinned[1], buffer, sizeof(int), orMemcpyDeviceToHost, stream));
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  EXPECT_EQ(pinned[0], 2);
  EXPECT_EQ(pinned[1], 3);
  OR_ASSERT_OK(orHostFree(pinned));
}

TEST(CopyAsync, BadStreamIsRecognised) {
  Buffer buffer(8);
  int local = 0;
  auto bad = reinterpret_cast<orStream_t>(&local);
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle,
                  orMemcpyAsync(buffer, &local, 4, orMemcpyDefault, bad));
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orMemsetAsync(buffer, 0, 8, bad));
}

// Copies that wait for a thread may be made by whoever waits for them: by several at once, here.
TEST(Copy, ThatSeveralThreadsWaitForIsMadeOnce) {
  constexpr size_t kCount = size_t{32} << 10;
  Stream stream;
  void *pinned = nullptr, *device = nullptr;
  OR_ASSERT_OK(orHostAlloc(&pinned, kCount * sizeof(int)));
  OR_ASSERT_OK(orMallocAsync(&device, kCount * sizeof(int), stream));
  auto* source = static_cast<int*>(pinned);
  auto* target = static_cast<int*>(KernelPointer(device));
  for (int round = 0; round < 100; ++round) {
    std::fill_n(source, kCount, round);
    OR_ASSERT_OK(orMemcpyAsync(device, pinned, kCount * sizeof(int), orMemcpyDefault, stream));
    KernelOf add{[&] {
      for (size_t i = 0; i < kCount; ++i) ++target[i];
      return orSuccess;
    }};
    OR_ASSERT_OK(orLaunchKernelQueued("add", add.Run, &add, stream));
    OR_ASSERT_OK(orMemcpyAsync(pinned, device, kCount * sizeof(int), orMemcpyDefault, stream));
    Event done;
    OR_ASSERT_OK(orEventRecord(done, stream));
    std::thread other([&] { EXPECT_TRUE(Drains(stream)); });
    OR_EXPECT_OK(orEventSynchronizeTimeout(done, kDeadlineMs));
    EXPECT_EQ(source[0], round + 1);
    EXPECT_EQ(source[kCount - 1], round + 1);
    other.join();
  }
  OR_ASSERT_OK(orFreeAsync(device));
  OR_ASSERT_OK(orHostFree(pinned));
}

}  // namespace
}  // namespace openreg_conformance
