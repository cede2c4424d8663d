#include "python/csrc/sanitizer/engine/engine.h"

#include <gtest/gtest.h>

namespace torch_openreg::sanitizer {
namespace {

constexpr Engine::Handle kMain = 100;
constexpr Engine::Handle kSide = 200;
constexpr Engine::Handle kThird = 300;
constexpr Engine::Handle kEvent = 7;

using Kind = Finding::Kind;

class EngineTest : public testing::Test {
 protected:
  std::vector<Finding> use(Engine::Handle stream, bool writes, Address low, Address high,
                           Place place = 0) {
    Operation operation;
    operation.place = place;
    Access access;
    access.operation = engine.begin(operation, stream);
    access.writes = writes;
    access.region = Region(low, high);
    access.tensor.storage_low = storage_low;
    access.tensor.storage_bytes = storage_bytes;
    return engine.access(std::move(access));
  }
  std::vector<Finding> write(Engine::Handle stream, Place place = 0) {
    return use(stream, true, 0, 64, place);
  }
  std::vector<Finding> read(Engine::Handle stream, Place place = 0) {
    return use(stream, false, 0, 64, place);
  }
  std::vector<Finding> host_read() {
    Access access;
    Operation operation;
    operation.on_host = true;
    access.operation = std::make_shared<const Operation>(operation);
    access.region = Region(0, 64);
    return engine.host_access(std::move(access));
  }

  Engine engine;
  Address storage_low = 0;
  std::size_t storage_bytes = 1 << 20;
};

TEST_F(EngineTest, OneStreamIsInOrder) {
  EXPECT_TRUE(write(kMain).empty());
  EXPECT_TRUE(read(kMain).empty());
  EXPECT_TRUE(write(kMain).empty());
}

TEST_F(EngineTest, TwoStreamsAreNot) {
  write(kMain, 11);
  const auto found = read(kSide, 12);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::kRace);
  EXPECT_EQ(found[0].first->operation->place, 11U);
  EXPECT_EQ(found[0].second->operation->place, 12U);
  EXPECT_TRUE(found[0].first->writes);
  EXPECT_FALSE(found[0].second->writes);
}

TEST_F(EngineTest, WhatIsReportedCountsAsOrderedFromThenOn) {
  use(kSide, true, 0, 8);
  use(kSide, true, 8, 16);
  use(kThird, true, 16, 24);
  EXPECT_EQ(use(kMain, false, 8, 16).size(), 1U);
  EXPECT_TRUE(use(kMain, true, 0, 16).empty());  // the wait that is missing would do for both
  EXPECT_EQ(use(kMain, false, 16, 24).size(), 1U);
  use(kSide, true, 0, 8);
  EXPECT_EQ(use(kMain, false, 0, 8).size(), 1U);
}

TEST_F(EngineTest, WhatTheHostWasToldOfCountsAsOrdered) {
  write(kMain);
  EXPECT_EQ(host_read().size(), 1U);
  EXPECT_TRUE(host_read().empty());
  EXPECT_TRUE(read(kSide).empty());
}

TEST_F(EngineTest, AnEventOrders) {
  write(kMain);
  engine.record_event(kEvent, kMain);
  engine.stream_waits_for_event(kSide, kEvent);
  EXPECT_TRUE(read(kSide).empty());
}

TEST_F(EngineTest, AnEventRecordedBeforeTheWorkDoesNot) {
  engine.record_event(kEvent, kMain);
  write(kMain);
  engine.stream_waits_for_event(kSide, kEvent);
  EXPECT_EQ(read(kSide).size(), 1U);
}

TEST_F(EngineTest, AWaitIsForTheRecordThatWasCurrentThen) {
  write(kMain);
  engine.record_event(kEvent, kMain);
  engine.stream_waits_for_event(kSide, kEvent);
  write(kMain);
  engine.record_event(kEvent, kMain);
  EXPECT_EQ(read(kSide).size(), 1U);
}

TEST_F(EngineTest, AnEventThatWasDestroyedAndMadeAgainIsAnother) {
  write(kMain);
  engine.record_event(kEvent, kMain);
  engine.forget_event(kEvent);
  engine.stream_waits_for_event(kSide, kEvent);
  EXPECT_EQ(read(kSide).size(), 1U);
}

TEST_F(EngineTest, OrderIsTransitive) {
  write(kMain);
  engine.stream_waits_for_stream(kSide, kMain);
  engine.stream_waits_for_stream(kThird, kSide);
  EXPECT_TRUE(write(kThird).empty());
}

TEST_F(EngineTest, TheHostCarriesOrderToAllStreams) {
  write(kMain);
  engine.host_waits_for_stream(kMain);
  EXPECT_TRUE(host_read().empty());
  EXPECT_TRUE(write(kSide).empty());
}

TEST_F(EngineTest, TheHostRacesWithWhatItHasNotWaitedFor) {
  write(kMain);
  EXPECT_EQ(host_read().size(), 1U);
  engine.record_event(kEvent, kMain);
  engine.host_waits_for_event(kEvent);
  EXPECT_TRUE(host_read().empty());
}

TEST_F(EngineTest, ADeviceSynchroniseCoversTheChosenStreams) {
  write(kMain);
  use(kSide, true, 100, 164);
  engine.host_waits_for_streams([](Engine::Handle stream) { return stream == kMain; });
  EXPECT_TRUE(read(kThird).empty());
  EXPECT_EQ(use(kThird, false, 100, 164).size(), 1U);
}

TEST_F(EngineTest, ASnapshotIsWhatWasIssuedByThen) {
  write(kSide);
  const Engine::Snapshot end = engine.snapshot(kSide);
  EXPECT_FALSE(engine.host_covers(end));
  use(kSide, true, 100, 164);
  engine.stream_waits_for(kMain, end);
  EXPECT_TRUE(read(kMain).empty());
  EXPECT_EQ(use(kMain, false, 100, 164).size(), 1U);
  engine.host_waits_for(end);
  EXPECT_TRUE(engine.host_covers(end));
}

TEST_F(EngineTest, OnlyTheLastOperationOfAStreamIsReported) {
  use(kMain, true, 0, 32, 11);
  use(kMain, true, 32, 64, 12);
  const auto found = read(kSide);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first->operation->place, 12U);
}

TEST_F(EngineTest, MemoryFreedUnderASideStreamIsReportedWhereItMayBeUsedAgain) {
  engine.allocate(0, 64, kMain);
  write(kMain);
  engine.stream_waits_for_stream(kSide, kMain);
  read(kSide, 12);
  engine.free(0, 13);
  engine.allocate(512, 64, kMain);  // another address: it might have been the same
  const auto found = use(kMain, true, 512, 576, 14);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::kReuse);
  EXPECT_EQ(found[0].first->operation->place, 12U);
  EXPECT_EQ(found[0].second->operation->place, 14U);
  EXPECT_EQ(found[0].freed_at, 13U);
}

TEST_F(EngineTest, AWaitBeforeTheNextUseOfNewMemoryIsInTime) {
  engine.allocate(0, 64, kMain);
  read(kSide);
  engine.free(0, 0);
  engine.allocate(0, 64, kMain);
  engine.stream_waits_for_stream(kMain, kSide);
  EXPECT_TRUE(write(kMain).empty());
}

TEST_F(EngineTest, OlderMemoryOfTheStreamIsNotTheFreedOne) {
  engine.allocate(0, 64, kMain);
  engine.allocate(512, 64, kMain);
  read(kSide);
  engine.free(0, 0);
  EXPECT_TRUE(use(kMain, true, 512, 576).empty());
}

TEST_F(EngineTest, WhatDidNotRunMeetsNothing) {
  const auto operation = engine.begin({}, kSide);
  Access refused;
  refused.operation = operation;
  refused.writes = true;
  refused.region = Region(0, 64);
  refused.tensor.storage_bytes = storage_bytes;
  engine.access(refused);
  engine.withdraw(*operation);
  EXPECT_TRUE(write(kMain).empty());
  EXPECT_EQ(read(kSide).size(), 1U);
}

TEST_F(EngineTest, RecordStreamProtects) {
  engine.allocate(0, 64, kMain);
  read(kSide);
  engine.record_stream(32, kSide);
  engine.free(0, 0);
  engine.allocate(0, 64, kMain);
  EXPECT_TRUE(write(kMain).empty());
}

TEST_F(EngineTest, RecordStreamOfAnotherStreamDoesNot) {
  engine.allocate(0, 64, kMain);
  read(kSide);
  engine.record_stream(0, kThird);
  engine.free(0, 0);
  engine.allocate(0, 64, kMain);
  EXPECT_EQ(write(kMain).size(), 1U);
}

TEST_F(EngineTest, ReuseOnTheSameStreamIsInOrder) {
  engine.allocate(0, 64, kMain);
  write(kMain);
  engine.free(0, 0);
  engine.allocate(0, 64, kMain);
  EXPECT_TRUE(write(kMain).empty());
}

TEST_F(EngineTest, UseAfterFreeNamesTheFree) {
  engine.allocate(0, 64, kMain);
  engine.free(0, 13);
  const auto found = read(kMain);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::kUseAfterFree);
  EXPECT_EQ(found[0].freed_at, 13U);
}

TEST_F(EngineTest, BeyondTheBlockIsOutOfBounds) {
  engine.allocate(0, 32, kMain);
  const auto found = read(kMain);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::kBounds);
}

TEST_F(EngineTest, BeyondTheStorageIsOutOfBounds) {
  engine.allocate(0, 64, kMain);
  storage_bytes = 32;
  const auto found = read(kMain);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::kBounds);
}

TEST_F(EngineTest, NothingIsLeftOfWhatWasForgotten) {
  engine.allocate(0, 32, kMain);
  use(kSide, true, 0, 32);
  engine.free(0, 0);
  engine.forget();
  EXPECT_TRUE(write(kMain).empty());
  engine.allocate(512, 64, kMain);
  EXPECT_TRUE(use(kMain, true, 512, 576).empty());
}

TEST_F(EngineTest, ForgottenMemoryIsNew) {
  write(kMain);
  EXPECT_TRUE(engine.used_by_streams(0, 64));
  engine.forget_memory(0, 64);
  EXPECT_FALSE(engine.used_by_streams(0, 64));
  EXPECT_TRUE(write(kSide).empty());
}

}  // namespace
}  // namespace torch_openreg::sanitizer
