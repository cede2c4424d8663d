// Devices, errors, versions, profiling.
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "openreg/conformance/conformance.h"

namespace openreg_conformance {
namespace {

int DeviceCount() {
  int count = 0;
  EXPECT_TRUE(Succeeds(orGetDeviceCount(&count)));
  return count;
}

TEST(Device, VersionIsThatOfTheHeader) {
  int version = 0;
  OR_ASSERT_OK(orRuntimeGetVersion(&version));
  EXPECT_EQ(version / 10000, OPENREG_VERSION_MAJOR);
}

TEST(Device, CountIsPositive) { EXPECT_GE(DeviceCount(), 1); }

TEST(Device, CurrentDeviceIsPerThread) {
  if (DeviceCount() < 2) GTEST_SKIP() << "needs two devices";
  OR_ASSERT_OK(orSetDevice(1));
  int here = -1, there = -1;
  OR_ASSERT_OK(orGetDevice(&here));
  std::thread([&] { OR_EXPECT_OK(orGetDevice(&there)); }).join();
  EXPECT_EQ(here, 1);
  EXPECT_EQ(there, 0);
  OR_ASSERT_OK(orSetDevice(0));
}

TEST(Device, WrongIndexIsInvalidDevice) {
  int count = DeviceCount();
  orDeviceProp properties;
  orStream_t stream;
  for (int device : {-1, count, 1 << 30, INT32_MIN}) {
    OR_EXPECT_ERROR(orErrorInvalidDevice, orSetDevice(device));
    OR_EXPECT_ERROR(orErrorInvalidDevice, orGetDeviceProperties(&properties, device));
    OR_EXPECT_ERROR(orErrorInvalidDevice, orDeviceGetDefaultStream(&stream, device));
    OR_EXPECT_ERROR(orErrorInvalidDevice, orMemEmptyCache(device));
    OR_EXPECT_ERROR(orErrorInvalidDevice, orDeviceSynchronizeTimeout(device, kDeadlineMs));
  }
  int device = -1;
  OR_ASSERT_OK(orGetDevice(&device));
  EXPECT_EQ(device, 0) << "a failure must not change the current device";
}

TEST(Device, PropertiesAreFilled) {
  orDeviceProp first, second;
  OR_ASSERT_OK(orGetDeviceProperties(&first, 0));
  EXPECT_STRNE(first.name, "");
  EXPECT_GT(first.totalGlobalMem, 0u);
  EXPECT_GE(first.multiProcessorCount, 1);
  EXPECT_LE(first.streamPriorityHigh, first.streamPriorityLow);
  size_t free = 0, total = 0;
  OR_ASSERT_OK(orMemGetInfo(&free, &total));
  EXPECT_EQ(total, first.totalGlobalMem);
  if (DeviceCount() < 2) return;
  OR_ASSERT_OK(orGetDeviceProperties(&second, 1));
  EXPECT_NE(std::memcmp(first.uuid, second.uuid, sizeof first.uuid), 0);
}

TEST(Device, PeersReachEachOther) {
  int can = 0;
  OR_ASSERT_OK(orDeviceCanAccessPeer(&can, 0, DeviceCount() - 1));
  EXPECT_EQ(can, 1);
}

TEST(Errors, NamesAndTextsAreNeverNull) {
  EXPECT_STREQ(orGetErrorName(orErrorInvalidValue), "orErrorInvalidValue");
  for (int code = 0; code < 1024; ++code) {
    EXPECT_NE(orGetErrorName(static_cast<orError_t>(code)), nullptr);
    EXPECT_NE(orGetErrorString(static_cast<orError_t>(code)), nullptr);
  }
}

TEST(Errors, LastErrorIsPerThreadAndReset) {
  (void)orGetLastError();
  OR_EXPECT_ERROR(orErrorInvalidDevice, orSetDevice(-5));
  EXPECT_EQ(orPeekAtLastError(), orErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(orPeekAtLastError(), orSuccess); }).join();
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
  EXPECT_EQ(orGetLastError(), orSuccess);
  EXPECT_NE(std::string(orGetLastErrorMessage()).find("-5"), std::string::npos)
      << "the message says what came: " << orGetLastErrorMessage();
}

TEST(Errors, SuccessLeavesTheLastErrorAlone) {
  OR_EXPECT_ERROR(orErrorInvalidDevice, orSetDevice(-5));
  OR_EXPECT_OK(orSetDevice(0));
  EXPECT_EQ(orGetLastError(), orErrorInvalidDevice);
}

TEST(Errors, NullOutParametersAreInvalidValue) {
  OR_EXPECT_ERROR(orErrorInvalidValue, orGetDeviceCount(nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orGetDevice(nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMalloc(nullptr, 8));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMallocAsync(nullptr, 8, nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orStreamCreate(nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orEventCreate(nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orGetKernelDelta(nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orMemGetInfo(nullptr, nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orPointerGetAttributes(nullptr, nullptr));
  OR_EXPECT_ERROR(orErrorInvalidValue, orIpcGetDeviceHandle(nullptr, 0));
  OR_EXPECT_ERROR(orErrorInvalidValue, orLaunchKernel("x", nullptr, nullptr, nullptr));
}

struct Seen {
  std::mutex mutex;
  std::vector<orActivity> activities;
};

void Record(const orActivity* activity, void* context) {
  auto* its = static_cast<Seen*>(context);
  std::lock_guard<std::mutex> lock(its->mutex);
  its->activities.push_back(*activity);
}

TEST(Profiler, ReportsKernelsCopiesAndHolds) {
  Seen seen;
  OR_ASSERT_OK(orProfilerSetCallback(Record, &seen));
  Stream stream;
  KernelOf nothing{[] { return orSuccess; }};
  OR_ASSERT_OK(orLaunchKernel("inline kernel", nothing.Run, &nothing, stream));
  OR_ASSERT_OK(orLaunchKernelQueued("queued kernel", nothing.Run, &nothing, stream));
  void* memory = nullptr;
  OR_ASSERT_OK(orMallocAsync(&memory, 4096, stream));
  OR_ASSERT_OK(orMemsetAsync(memory, 1, 4096, stream));
  ASSERT_TRUE(Drains(stream));
  OR_ASSERT_OK(orStreamAcquire(stream, "hold", kDeadlineMs));
  OR_ASSERT_OK(orStreamRelease(stream));
  orActivity marker{orActivityMarker, "all_reduce", 0, 0, 5, 6, 7};
  OR_ASSERT_OK(orStreamGetId(stream, &marker.streamId));
  OR_ASSERT_OK(orProfilerReport(&marker));
  OR_ASSERT_OK(orProfilerSetCallback(nullptr, nullptr));
  OR_EXPECT_OK(orProfilerReport(&marker));
  OR_EXPECT_ERROR(orErrorInvalidValue, orProfilerReport(nullptr));
  OR_ASSERT_OK(orLaunchKernel("unseen", nothing.Run, &nothing, stream));
  OR_ASSERT_OK(orFreeAsync(memory));

  uint64_t id = 0;
  OR_ASSERT_OK(orStreamGetId(stream, &id));
  ASSERT_EQ(seen.activities.size(), 5u);
  EXPECT_STREQ(seen.activities[0].name, "inline kernel");
  EXPECT_STREQ(seen.activities[1].name, "queued kernel");
  EXPECT_EQ(seen.activities[2].kind, orActivityMemset);
  EXPECT_EQ(seen.activities[2].bytes, 4096u);
  EXPECT_STREQ(seen.activities[3].name, "hold");
  EXPECT_STREQ(seen.activities[4].name, "all_reduce");
  EXPECT_EQ(seen.activities[4].bytes, 7u);
  for (const orActivity& activity : seen.activities) {
    EXPECT_EQ(activity.streamId, id);
    EXPECT_EQ(activity.device, 0);
    EXPECT_LE(activity.start_ns, activity.end_ns);
  }
}

TEST(Profiler, ReportsAHoldAndItsRestAsOne) {
  Seen seen;
  Stream stream;
  OR_ASSERT_OK(orProfilerSetCallback(Record, &seen));
  KernelOf nothing{[] { return orSuccess; }};
  OR_ASSERT_OK(orStreamAcquire(stream, "begun", kDeadlineMs));
  OR_ASSERT_OK(orLaunchKernel("inside", nothing.Run, &nothing, stream));
  OR_ASSERT_OK(orStreamReleaseTo(stream, "one", nothing.Run, &nothing));
  ASSERT_TRUE(Drains(stream));
  OR_ASSERT_OK(orStreamAcquire(stream, "outer", kDeadlineMs));
  OR_ASSERT_OK(orStreamTryAcquire(stream, "inner"));
  OR_ASSERT_OK(orStreamReleaseTo(stream, "rest", nothing.Run, &nothing));
  OR_ASSERT_OK(orStreamRelease(stream));
  ASSERT_TRUE(Drains(stream));
  OR_ASSERT_OK(orProfilerSetCallback(nullptr, nullptr));
  ASSERT_EQ(seen.activities.size(), 4u);
  const char* names[] = {"inside", "one", "outer", "rest"};
  for (size_t i = 0; i < 4; ++i) EXPECT_STREQ(seen.activities[i].name, names[i]);
  EXPECT_LE(seen.activities[1].start_ns, seen.activities[0].start_ns);
  EXPECT_GE(seen.activities[1].end_ns, seen.activities[0].end_ns);
  EXPECT_GE(seen.activities[3].start_ns, seen.activities[2].end_ns);
}

TEST(Profiler, ReportsHoldsAndKernelsAsWhatTheySay) {
  Seen seen;
  Stream stream;
  OR_EXPECT_ERROR(orErrorNotPermitted, orStreamSetActivity(stream, orActivityMemcpy, "no", 1));
  OR_ASSERT_OK(orProfilerSetCallback(Record, &seen));
  OR_ASSERT_OK(orStreamAcquire(stream, "hold", kDeadlineMs));
  OR_ASSERT_OK(orStreamSetActivity(stream, orActivityMemcpy, nullptr, 100));
  OR_ASSERT_OK(orStreamAcquire(stream, "nested", kDeadlineMs));
  OR_ASSERT_OK(orStreamSetActivity(stream, orActivityMemset, "changes nothing", 1));
  OR_ASSERT_OK(orStreamRelease(stream));
  OR_ASSERT_OK(orStreamRelease(stream));
  KernelOf kernel{
      [&] { return orStreamSetActivity(stream, orActivityMemcpy, "transfer", size_t{200}); }};
  OR_ASSERT_OK(orLaunchKernel("inline", kernel.Run, &kernel, stream));
  OR_ASSERT_OK(orLaunchKernelQueued("queued", kernel.Run, &kernel, stream));
  ASSERT_TRUE(Drains(stream));
  OR_ASSERT_OK(orStreamAcquire(stream, "later hold", kDeadlineMs));
  OR_ASSERT_OK(orStreamRelease(stream));
  OR_ASSERT_OK(orProfilerSetCallback(nullptr, nullptr));
  ASSERT_EQ(seen.activities.size(), 4u);
  const char* names[] = {"hold", "transfer", "transfer", "later hold"};
  size_t bytes[] = {100, 200, 200, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_STREQ(seen.activities[i].name, names[i]);
    EXPECT_EQ(seen.activities[i].bytes, bytes[i]) << i;
    EXPECT_EQ(seen.activities[i].kind, i < 3 ? orActivityMemcpy : orActivityKernel) << i;
  }
}

}  // namespace
}  // namespace openreg_conformance
