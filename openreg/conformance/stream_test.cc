// Streams: order, holding, errors, handles.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "openreg/conformance/conformance.h"

namespace openreg_conformance {
namespace {

TEST(Stream, RunsWorkInOrder) {
  Stream stream;
  std::vector<int> order;
  auto append = [&order](int value) {
    return KernelOf{[&order, value] {
      order.push_back(value);
      return orSuccess;
    }};
  };
  std::vector<decltype(append(0))> kernels;
  constexpr int kCount = 1000;
  for (int i = 0; i < kCount; ++i) kernels.push_back(append(i));
  for (auto& kernel : kernels) {
    OR_ASSERT_OK(orLaunchKernelQueued("append", kernel.Run, &kernel, stream));
  }
  ASSERT_TRUE(Drains(stream));
  ASSERT_EQ(order.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Stream, KernelRunsOnTheCallerIfTheStreamIsEmpty) {
  Stream stream;
  std::thread::id ran_on;
  KernelOf kernel{[&] {
    ran_on = std::this_thread::get_id();
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("kernel", kernel.Run, &kernel, stream));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(Stream, KernelIsQueuedIfTheStreamIsNotEmpty) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  std::atomic<bool> ran{false};
  KernelOf kernel{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("kernel", kernel.Run, &kernel, stream));
  EXPECT_FALSE(ran);
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  EXPECT_TRUE(ran);
}

TEST(Stream, QueryIsNotReadyWhileWorkRuns) {
  Stream stream;
  EXPECT_EQ(orStreamQuery(stream), orSuccess);
  Gate gate;
  gate.Block(stream);
  ASSERT_TRUE(gate.WaitReached());
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  EXPECT_EQ(orStreamQuery(stream), orSuccess);
}

TEST(Stream, NotReadyLeavesTheLastErrorAlone) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  (void)orGetLastError();
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  EXPECT_EQ(orStreamTryAcquire(stream, "x"), orErrorNotReady);
  EXPECT_EQ(orPeekAtLastError(), orSuccess);
  gate.Open();
}

TEST(Stream, SynchronizeHonoursItsDeadline) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  OR_EXPECT_ERROR(orErrorTimeout, orStreamSynchronizeTimeout(stream, 20));
  OR_EXPECT_ERROR(orErrorTimeout, orStreamSynchronizeTimeout(stream, 0));
  OR_EXPECT_ERROR(orErrorTimeout, orDeviceSynchronizeTimeout(0, 20));
  gate.Open();
  EXPECT_TRUE(Drains(stream));
  OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
}

TEST(Stream, StreamsRunBesideEachOther) {
  Stream blocked, other;
  Gate gate;
  gate.Block(blocked);
  std::atomic<bool> ran{false};
  KernelOf kernel{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernelQueued("kernel", kernel.Run, &kernel, other));
  EXPECT_TRUE(Drains(other));
  EXPECT_TRUE(ran);
  gate.Open();
}

TEST(Stream, HostFunctionsNeverRunOnTheCaller) {
  Stream stream;
  std::thread::id ran_on;
  auto body = [](void* out) { *static_cast<std::thread::id*>(out) = std::this_thread::get_id(); };
  OR_ASSERT_OK(orLaunchHostFunc(stream, body, &ran_on));
  ASSERT_TRUE(Drains(stream));
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

// ---------------------------------------------------------------------------- errors

TEST(Stream, KernelErrorStaysUntilItIsReported) {
  Stream stream;
  KernelOf failing{[] { return orErrorLaunchFailure; }};
  std::atomic<bool> ran{false};
  KernelOf next{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernelQueued("failing kernel", failing.Run, &failing, stream));
  OR_ASSERT_OK(orLaunchKernelQueued("next", next.Run, &next, stream));
  OR_EXPECT_ERROR(orErrorLaunchFailure, orStreamSynchronizeTimeout(stream, kDeadlineMs));
  EXPECT_NE(std::string(orGetLastErrorMessage()).find("failing kernel"), std::string::npos)
      << orGetLastErrorMessage();
  EXPECT_TRUE(ran) << "work behind a failure still runs";
  OR_EXPECT_OK(orStreamSynchronizeTimeout(stream, kDeadlineMs));
}

TEST(Stream, DeviceSynchronizeReportsKernelErrors) {
  Stream stream;
  KernelOf failing{[] { return orErrorPeerDead; }};
  OR_ASSERT_OK(orLaunchKernel("failing", failing.Run, &failing, stream));
  OR_EXPECT_ERROR(orErrorPeerDead, orDeviceSynchronizeTimeout(0, kDeadlineMs));
  OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
}

// Whoever orders its stream after one with a failure is told, and all together are told once.
TEST(Stream, AnErrorReachesTheStreamsThatWaitForIt) {
  for (bool failed_before : {true, false}) {
    Stream failing_stream, waiting_stream, last_stream;
    std::atomic<bool> go{failed_before};
    KernelOf failing{[&] {
      while (!go) std::this_thread::yield();
      return orErrorLaunchFailure;
    }};
    Event event, other_event;
    OR_ASSERT_OK(orLaunchKernelQueued("failing", failing.Run, &failing, failing_stream));
    OR_ASSERT_OK(orEventRecord(event, failing_stream));
    // Not by synchronising with the event, which would be told of the failure.
    while (failed_before && orEventQuery(event) == orErrorNotReady) std::this_thread::yield();
    OR_ASSERT_OK(orStreamWaitEvent(waiting_stream, event));
    OR_ASSERT_OK(orEventRecord(other_event, waiting_stream));
    OR_ASSERT_OK(orStreamWaitEvent(last_stream, other_event));
    go = true;
    OR_EXPECT_ERROR(orErrorLaunchFailure, orStreamSynchronizeTimeout(last_stream, kDeadlineMs));
    EXPECT_NE(std::string(orGetLastErrorMessage()).find("'failing'"), std::string::npos)
        << orGetLastErrorMessage();
    OR_EXPECT_OK(orStreamSynchronizeTimeout(waiting_stream, kDeadlineMs));
    OR_EXPECT_OK(orStreamSynchronizeTimeout(failing_stream, kDeadlineMs));
    OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
  }
}

// Whoever knows by itself what failed, and finds that it matters no more, must lose nothing else.
TEST(Stream, ANotedFailureGivesWayToAnyOther) {
  for (bool noted_first : {true, false}) {
    Stream stream, other_stream, waiting_stream;
    Event event;
    KernelOf first{[&] { return noted_first ? orErrorNotedFailure : orErrorPeerDead; }};
    KernelOf second{[&] { return noted_first ? orErrorPeerDead : orErrorNotedFailure; }};
    // On one stream.
    OR_ASSERT_OK(orLaunchKernelQueued("first", first.Run, &first, stream));
    OR_ASSERT_OK(orLaunchKernelQueued("second", second.Run, &second, stream));
    OR_EXPECT_ERROR(orErrorPeerDead, orStreamSynchronizeTimeout(stream, kDeadlineMs));
    OR_EXPECT_OK(orStreamSynchronizeTimeout(stream, kDeadlineMs));
    // On a stream that waits for another.
    OR_ASSERT_OK(orLaunchKernelQueued("first", first.Run, &first, waiting_stream));
    OR_ASSERT_OK(orLaunchKernelQueued("second", second.Run, &second, stream));
    OR_ASSERT_OK(orEventRecord(event, stream));
    OR_ASSERT_OK(orStreamWaitEvent(waiting_stream, event));
    OR_EXPECT_ERROR(orErrorPeerDead, orStreamSynchronizeTimeout(waiting_stream, kDeadlineMs));
    (void)orDeviceSynchronizeTimeout(0, kDeadlineMs);  // the other one, where it was left
    // On two streams of a device.
    OR_ASSERT_OK(orLaunchKernelQueued("first", first.Run, &first, stream));
    OR_ASSERT_OK(orLaunchKernelQueued("second", second.Run, &second, other_stream));
    OR_EXPECT_ERROR(orErrorPeerDead, orDeviceSynchronizeTimeout(0, kDeadlineMs));
    OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
  }
}

TEST(Stream, ANotedFailureIsReportedAsSuch) {
  Stream stream;
  KernelOf noted{[] { return orErrorNotedFailure; }};
  OR_ASSERT_OK(orLaunchKernelQueued("noted", noted.Run, &noted, stream));
  OR_EXPECT_ERROR(orErrorNotedFailure, orStreamSynchronizeTimeout(stream, kDeadlineMs));
  OR_EXPECT_OK(orStreamSynchronizeTimeout(stream, kDeadlineMs));
}

TEST(Stream, DeviceSynchronizeTellsAllThatItClears) {
  Stream first, second;
  KernelOf failing{[] { return orErrorLaunchFailure; }};
  OR_ASSERT_OK(orLaunchKernelQueued("one failing", failing.Run, &failing, first));
  OR_ASSERT_OK(orLaunchKernelQueued("another failing", failing.Run, &failing, second));
  OR_EXPECT_ERROR(orErrorLaunchFailure, orDeviceSynchronizeTimeout(0, kDeadlineMs));
  for (const char* name : {"one failing", "another failing"}) {
    EXPECT_NE(std::string(orGetLastErrorMessage()).find(name), std::string::npos)
        << orGetLastErrorMessage();
  }
  OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
}

TEST(Stream, SynchronizeFromItsOwnWorkIsNotPermitted) {
  Stream stream;
  orError_t inside = orSuccess;
  orStream_t handle = stream;
  KernelOf kernel{[&] {
    inside = orStreamSynchronizeTimeout(handle, kDeadlineMs);
    return orSuccess;
  }};
  for (bool queued : {false, true}) {
    OR_ASSERT_OK(
        (queued ? orLaunchKernelQueued : orLaunchKernel)("self", kernel.Run, &kernel, handle));
    ASSERT_TRUE(Drains(stream));
    EXPECT_EQ(inside, orErrorNotPermitted);
  }
}

// ---------------------------------------------------------------------------- holding

TEST(Hold, CountsAsRunning) {
  Stream stream;
  Event event(orEventDisableTiming);
  OR_ASSERT_OK(orStreamTryAcquire(stream, "operator"));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  std::thread([&] { OR_EXPECT_OK(orEventRecord(event, stream)); }).join();
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  OR_ASSERT_OK(orStreamRelease(stream));
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  EXPECT_EQ(orStreamQuery(stream), orSuccess);
}

TEST(Hold, IsReentrantForItsThread) {
  Stream stream;
  OR_ASSERT_OK(orStreamAcquire(stream, "outer", kDeadlineMs));
  OR_ASSERT_OK(orStreamTryAcquire(stream, "inner"));
  bool ran = false;
  KernelOf kernel{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("kernel", kernel.Run, &kernel, stream));
  EXPECT_TRUE(ran) << "the holder's kernels run at once";
  OR_ASSERT_OK(orStreamRelease(stream));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  OR_ASSERT_OK(orStreamRelease(stream));
  EXPECT_EQ(orStreamQuery(stream), orSuccess);
}

TEST(Hold, KeepsOtherThreadsOut) {
  Stream stream;
  OR_ASSERT_OK(orStreamAcquire(stream, "holder", kDeadlineMs));
  std::thread([&] {
    EXPECT_EQ(orStreamTryAcquire(stream, "other"), orErrorNotReady);
    OR_EXPECT_ERROR(orErrorTimeout, orStreamAcquire(stream, "other", 20));
    OR_EXPECT_ERROR(orErrorNotPermitted, orStreamRelease(stream));
  }).join();
  OR_ASSERT_OK(orStreamRelease(stream));
  // The turn that was given up must not block anybody.
  OR_ASSERT_OK(orStreamAcquire(stream, "next", kDeadlineMs));
  OR_ASSERT_OK(orStreamRelease(stream));
}

TEST(Hold, AcquireWaitsForQueuedWork) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  std::atomic<bool> acquired{false};
  std::thread waiter([&] {
    OR_EXPECT_OK(orStreamAcquire(stream, "waiter", kDeadlineMs));
    acquired = true;
    OR_EXPECT_OK(orStreamRelease(stream));
  });
  EXPECT_FALSE(acquired);
  gate.Open();
  waiter.join();
  EXPECT_TRUE(acquired);
}

TEST(Hold, GivenUpTurnLetsQueuedWorkGoOn) {
  Stream stream;
  Gate gate;
  gate.Block(stream);
  OR_EXPECT_ERROR(orErrorTimeout, orStreamAcquire(stream, "in vain", 10));
  std::atomic<bool> ran{false};
  KernelOf kernel{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("behind", kernel.Run, &kernel, stream));
  gate.Open();
  ASSERT_TRUE(Drains(stream));
  EXPECT_TRUE(ran);
}

TEST(Hold, ReleaseWithoutHoldIsNotPermitted) {
  Stream stream;
  KernelOf nothing{[] { return orSuccess; }};
  OR_EXPECT_ERROR(orErrorNotPermitted, orStreamRelease(stream));
  OR_EXPECT_ERROR(orErrorNotPermitted, orStreamReleaseTo(stream, "rest", nothing.Run, &nothing));
}

TEST(Hold, ReleaseToRunsTheRestBeforeWhatWasQueued) {
  Stream stream;
  std::vector<std::string> order;
  KernelOf rest{[&] {
    order.push_back("rest");
    return orSuccess;
  }};
  KernelOf queued{[&] {
    order.push_back("queued");
    return orSuccess;
  }};
  Event event(orEventDisableTiming);
  OR_ASSERT_OK(orStreamAcquire(stream, "begun", kDeadlineMs));
  OR_ASSERT_OK(orLaunchKernelQueued("queued", queued.Run, &queued, stream));
  order.push_back("begun");
  OR_ASSERT_OK(orStreamReleaseTo(stream, "rest", rest.Run, &rest));
  ASSERT_TRUE(Drains(stream));
  EXPECT_EQ(order, (std::vector<std::string>{"begun", "rest", "queued"}));
}

TEST(Hold, RestRunsAfterTheOutermostRelease) {
  Stream stream;
  std::atomic<bool> ran{false};
  KernelOf rest{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orStreamAcquire(stream, "outer", kDeadlineMs));
  OR_ASSERT_OK(orStreamTryAcquire(stream, "inner"));
  OR_ASSERT_OK(orStreamReleaseTo(stream, "rest", rest.Run, &rest));
  EXPECT_FALSE(ran);
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  OR_ASSERT_OK(orStreamRelease(stream));
  ASSERT_TRUE(Drains(stream));
  EXPECT_TRUE(ran);
}

// Threads that share a stream, each taking it in every way there is; the counter is not atomic, so
// a hold that is not exclusive shows as a wrong sum (and as a race under ThreadSanitizer).
TEST(Hold, IsExclusiveAmongThreads) {
  Stream stream;
  constexpr int kThreads = 4, kRounds = 500;
  int64_t counter = 0;
  KernelOf add{[&] {
    ++counter;
    return orSuccess;
  }};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        OR_ASSERT_OK(orStreamAcquire(stream, "add", kDeadlineMs));
        ++counter;
        if (i % 2 == 0) {
          OR_ASSERT_OK(orStreamRelease(stream));
        } else {
          OR_ASSERT_OK(orStreamReleaseTo(stream, "rest", add.Run, &add));
        }
        OR_ASSERT_OK(orLaunchKernel("add", add.Run, &add, stream));
        OR_ASSERT_OK(orLaunchKernelQueued("add", add.Run, &add, stream));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(Drains(stream));
  EXPECT_EQ(counter, kThreads * (3 * kRounds + kRounds / 2));
}

// ---------------------------------------------------------------------------- handles

TEST(StreamHandle, DestroyedAndMadeUpHandlesAreRecognised) {
  orStream_t stream;
  OR_ASSERT_OK(orStreamCreate(&stream));
  OR_ASSERT_OK(orStreamDestroy(stream));
  int number = 0;
  orEvent_t event;
  OR_ASSERT_OK(orEventCreate(&event));
  for (orStream_t bad :
       {stream, reinterpret_cast<orStream_t>(uintptr_t{0x1234}),
        reinterpret_cast<orStream_t>(&number), reinterpret_cast<orStream_t>(event)}) {
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamDestroy(bad));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamQuery(bad));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamSynchronizeTimeout(bad, kDeadlineMs));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventRecord(event, bad));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamGetDevice(bad, &number));
  }
  OR_EXPECT_OK(orEventDestroy(event));
}

TEST(StreamHandle, HandlesAreNotReusedSoon) {
  orStream_t first;
  OR_ASSERT_OK(orStreamCreate(&first));
  OR_ASSERT_OK(orStreamDestroy(first));
  for (int i = 0; i < 2000; ++i) {
    orStream_t stream;
    OR_ASSERT_OK(orStreamCreate(&stream));
    ASSERT_NE(stream, first);
    OR_ASSERT_OK(orStreamDestroy(stream));
  }
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamQuery(first));
}

TEST(StreamHandle, DestroyLetsQueuedWorkRun) {
  orStream_t stream;
  OR_ASSERT_OK(orStreamCreate(&stream));
  Gate gate, done;
  gate.Block(stream);
  done.Block(stream);
  OR_ASSERT_OK(orStreamDestroy(stream));
  gate.Open();
  EXPECT_TRUE(done.WaitReached());
  done.Open();
  OR_EXPECT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
}

TEST(StreamHandle, DefaultStreamsExistAndStay) {
  orStream_t stream;
  uint64_t id = 99;
  OR_ASSERT_OK(orDeviceGetDefaultStream(&stream, 0));
  OR_ASSERT_OK(orStreamGetId(stream, &id));
  EXPECT_EQ(id, 0u);
  OR_ASSERT_OK(orStreamGetId(nullptr, &id));
  EXPECT_EQ(id, 0u) << "NULL is the default stream of the current device";
  OR_EXPECT_ERROR(orErrorInvalidValue, orStreamDestroy(stream));
  OR_EXPECT_ERROR(orErrorInvalidValue, orStreamDestroy(nullptr));
}

TEST(StreamHandle, IdsAreNeverReused) {
  uint64_t previous = 0;
  for (int i = 0; i < 200; ++i) {
    Stream stream;
    uint64_t id = 0;
    OR_ASSERT_OK(orStreamGetId(stream, &id));
    EXPECT_GT(id, previous);
    previous = id;
  }
}

TEST(StreamHandle, PrioritiesAreClamped) {
  int least = 0, greatest = 0;
  OR_ASSERT_OK(orDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LE(greatest, least);
  for (int wanted : {-1000, greatest, least, 1000}) {
    Stream stream(wanted);
    int priority = 77;
    OR_ASSERT_OK(orStreamGetPriority(stream, &priority));
    EXPECT_EQ(priority, std::min(std::max(wanted, greatest), least));
  }
}

// Streams come and go while work runs on them.
TEST(StreamHandle, ManyShortStreams) {
  std::atomic<int> ran{0};
  auto add = [](void* its) { static_cast<std::atomic<int>*>(its)->fetch_add(1); };
  for (int i = 0; i < 200; ++i) {
    orStream_t stream;
    OR_ASSERT_OK(orStreamCreate(&stream));
    OR_ASSERT_OK(orLaunchHostFunc(stream, add, &ran));
    OR_ASSERT_OK(orStreamDestroy(stream));
  }
  OR_ASSERT_OK(orDeviceSynchronizeTimeout(0, kDeadlineMs));
  EXPECT_EQ(ran, 200);
}

}  // namespace
}  // namespace openreg_conformance
