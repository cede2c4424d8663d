// Events: what a record captures, waits between streams, timing.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "openreg/conformance/conformance.h"

namespace openreg_conformance {
namespace {

TEST(Event, NeverRecordedIsComplete) {
  Event event;
  EXPECT_EQ(orEventQuery(event), orSuccess);
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  Stream stream;
  OR_EXPECT_OK(orStreamWaitEvent(stream, event));
  EXPECT_EQ(orStreamQuery(stream), orSuccess) << "waiting for nothing is no work";
}

TEST(Event, RecordOnAnEmptyStreamIsCompleteAtOnce) {
  for (unsigned flags : {orEventDefault, orEventDisableTiming, orEventBlockingSync}) {
    Stream stream;
    Event event(flags);
    OR_ASSERT_OK(orEventRecord(event, stream));
    EXPECT_EQ(orEventQuery(event), orSuccess);
  }
}

TEST(Event, CapturesTheWorkQueuedBefore) {
  for (unsigned flags : {orEventDefault, orEventDisableTiming}) {
    Stream stream;
    Event event(flags);
    Gate before, after;
    before.Block(stream);
    OR_ASSERT_OK(orEventRecord(event, stream));
    after.Block(stream);
    EXPECT_EQ(orEventQuery(event), orErrorNotReady);
    OR_EXPECT_ERROR(orErrorTimeout, orEventSynchronizeTimeout(event, 10));
    before.Open();
    OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
    EXPECT_EQ(orEventQuery(event), orSuccess) << "work queued after the record does not count";
    after.Open();
  }
}

TEST(Event, WaitOrdersTwoStreams) {
  Stream producer, consumer;
  Event event(orEventDisableTiming);
  Gate gate;
  std::atomic<int> value{0};
  int seen = -1;
  gate.Block(producer);
  KernelOf produce{[&] {
    value = 42;
    return orSuccess;
  }};
  KernelOf consume{[&] {
    seen = value;
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("produce", produce.Run, &produce, producer));
  OR_ASSERT_OK(orEventRecord(event, producer));
  OR_ASSERT_OK(orStreamWaitEvent(consumer, event));
  OR_ASSERT_OK(orLaunchKernel("consume", consume.Run, &consume, consumer));
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  ASSERT_TRUE(Drains(consumer));
  EXPECT_EQ(seen, 42);
}

TEST(Event, WaitIsForTheRecordOfItsTime) {
  Stream producer, consumer;
  Event event(orEventDisableTiming);
  Gate first, second;
  first.Block(producer);
  OR_ASSERT_OK(orEventRecord(event, producer));
  OR_ASSERT_OK(orStreamWaitEvent(consumer, event));
  second.Block(producer);
  OR_ASSERT_OK(orEventRecord(event, producer));  // must not change the wait
  first.Open();
  EXPECT_TRUE(Drains(consumer));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  second.Open();
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
}

TEST(Event, MayBeDestroyedRightAfterTheWait) {
  Stream producer, consumer;
  Gate gate;
  gate.Block(producer);
  {
    Event event;
    OR_ASSERT_OK(orEventRecord(event, producer));
    OR_ASSERT_OK(orStreamWaitEvent(consumer, event));
  }
  EXPECT_EQ(orStreamQuery(consumer), orErrorNotReady);
  gate.Open();
  EXPECT_TRUE(Drains(consumer));
}

TEST(Event, OutlivesItsStream) {
  Event event;
  orStream_t stream;
  OR_ASSERT_OK(orStreamCreate(&stream));
  Gate gate;
  gate.Block(stream);
  OR_ASSERT_OK(orEventRecord(event, stream));
  OR_ASSERT_OK(orStreamDestroy(stream));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  gate.Open();
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
}

TEST(Event, ElapsedTimeCoversTheWorkBetween) {
  Stream stream;
  Event start, end;
  OR_ASSERT_OK(orEventRecord(start, stream));
  Gate gate;
  gate.Block(stream);
  OR_ASSERT_OK(orEventRecord(end, stream));
  float ms = -1;
  EXPECT_EQ(orEventElapsedTime(&ms, start, end), orErrorNotReady);
  ASSERT_TRUE(gate.WaitReached());
  auto from = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - from < std::chrono::milliseconds(2)) {
  }
  gate.Open();
  OR_ASSERT_OK(orEventSynchronizeTimeout(end, kDeadlineMs));
  OR_ASSERT_OK(orEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 2.0f);
  OR_ASSERT_OK(orEventElapsedTime(&ms, end, start));
  EXPECT_LE(ms, -2.0f);
}

TEST(Event, ElapsedTimeNeedsTwoTimedRecords) {
  Stream stream;
  Event timed, untimed(orEventDisableTiming), never;
  OR_ASSERT_OK(orEventRecord(timed, stream));
  OR_ASSERT_OK(orEventRecord(untimed, stream));
  float ms;
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventElapsedTime(&ms, timed, untimed));
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventElapsedTime(&ms, never, timed));
  OR_EXPECT_ERROR(orErrorInvalidValue, orEventElapsedTime(nullptr, timed, timed));
}

TEST(Event, BelongsToItsDevice) {
  int count = 0;
  OR_ASSERT_OK(orGetDeviceCount(&count));
  if (count < 2) GTEST_SKIP() << "needs two devices";
  Event here;
  OR_ASSERT_OK(orSetDevice(1));
  Event there;
  Stream stream_there;
  OR_ASSERT_OK(orSetDevice(0));
  int device = -1;
  OR_ASSERT_OK(orEventGetDevice(there, &device));
  EXPECT_EQ(device, 1);
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventRecord(here, stream_there));
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventRecord(there, nullptr));
  Gate gate;
  gate.Block(stream_there);
  OR_ASSERT_OK(orEventRecord(there, stream_there));
  Stream stream_here;
  OR_ASSERT_OK(orStreamWaitEvent(stream_here, there));  // waiting across devices is fine
  EXPECT_EQ(orStreamQuery(stream_here), orErrorNotReady);
  gate.Open();
  EXPECT_TRUE(Drains(stream_here));
}

TEST(Event, FlagsAreChecked) {
  orEvent_t event;
  OR_EXPECT_ERROR(orErrorInvalidValue, orEventCreateWithFlags(&event, 0x80));
  OR_EXPECT_ERROR(orErrorInvalidValue, orEventCreateWithFlags(&event, orEventInterprocess));
}

TEST(Event, DestroyedAndMadeUpHandlesAreRecognised) {
  orEvent_t event;
  OR_ASSERT_OK(orEventCreate(&event));
  OR_ASSERT_OK(orEventDestroy(event));
  int number = 0;
  for (orEvent_t bad : {event, orEvent_t{nullptr}, reinterpret_cast<orEvent_t>(&number)}) {
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventDestroy(bad));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventQuery(bad));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orEventRecord(bad, nullptr));
    OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orStreamWaitEvent(nullptr, bad));
  }
}

TEST(Event, SynchronizeOnOwnWorkIsNotPermitted) {
  Stream stream;
  Event event(orEventDisableTiming);
  orStream_t handle = stream;
  orError_t inside = orSuccess;
  KernelOf kernel{[&] {
    OR_EXPECT_OK(orEventRecord(event, handle));
    inside = orEventSynchronizeTimeout(event, kDeadlineMs);
    return orSuccess;
  }};
  OR_ASSERT_OK(orLaunchKernel("self", kernel.Run, &kernel, stream));
  EXPECT_EQ(inside, orErrorNotPermitted);
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
}

// A ring of streams, each step waiting for the previous one's event, in many rounds.
TEST(Event, ChainsAcrossStreamsKeepOrder) {
  constexpr int kStreams = 4, kRounds = 200;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<Stream>());
  Event event(orEventDisableTiming);
  int64_t counter = 0;
  KernelOf add{[&] {
    ++counter;  // not atomic: the events are what orders it
    return orSuccess;
  }};
  for (int i = 0; i < kRounds; ++i) {
    Stream& stream = *streams[static_cast<size_t>(i % kStreams)];
    OR_ASSERT_OK(orStreamWaitEvent(stream, event));
    auto launch = i % 3 == 0 ? orLaunchKernelQueued : orLaunchKernel;
    OR_ASSERT_OK(launch("add", add.Run, &add, stream));
    OR_ASSERT_OK(orEventRecord(event, stream));
  }
  OR_ASSERT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  EXPECT_EQ(counter, kRounds);
}

}  // namespace
}  // namespace openreg_conformance
