// Faults on request: what each looks like to the caller, and that a seed brings the same ones
// again.
#include "occl/transport/faulty/faulty.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl {
namespace {

using faulty::Decide;
using faulty::Fault;
using occl_conformance::DeviceBuffer;
using occl_conformance::NowMs;
using occl_conformance::Rank;
using occl_conformance::RankOptions;
using occl_conformance::RunThreads;

occlFaults_t NoFaults() {
  occlFaults_t faults = {};
  faults.structSize = sizeof(faults);
  faults.seed = 5;
  return faults;
}

class FaultyTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(occlSetFaults(nullptr), occlSuccess); }
};

std::vector<Fault> Draw(uint64_t seed) {
  occlFaults_t faults = NoFaults();
  faults.seed = seed;
  faults.delay = faults.drop = faults.truncate = faults.reset = 0.1;
  EXPECT_EQ(occlSetFaults(&faults), occlSuccess);
  std::vector<Fault> drawn;
  for (int rank = 0; rank < 10; ++rank) {
    for (uint64_t number = 0; number < 200; ++number) {
      drawn.push_back(Decide({"group", rank, rank % 3 - 1, number}).fault);
    }
  }
  return drawn;
}

TEST_F(FaultyTest, ASeedBringsTheSameFaultsAndAnotherSeedOthers) {
  const std::vector<Fault> first = Draw(1);
  EXPECT_EQ(Draw(1), first);
  EXPECT_NE(Draw(2), first);
  for (Fault fault : {Fault::kDelay, Fault::kDrop, Fault::kTruncate, Fault::kReset}) {
    const auto found = std::count(first.begin(), first.end(), fault);
    EXPECT_GT(found, 140);  // of 2000, at 0.1: 200 +- 13
    EXPECT_LT(found, 260);
  }
}

TEST_F(FaultyTest, RefusesWhatIsNoProbability) {
  for (double value : {-0.1, 1.1, 0.0 / 0.0}) {
    occlFaults_t faults = NoFaults();
    faults.drop = value;
    EXPECT_EQ(occlSetFaults(&faults), occlInvalidArgument);
  }
  occlFaults_t faults = NoFaults();
  faults.drop = faults.reset = 0.6;
  EXPECT_EQ(occlSetFaults(&faults), occlInvalidArgument);
  faults = NoFaults();
  faults.delay_ns = -1;
  EXPECT_EQ(occlSetFaults(&faults), occlInvalidArgument);
}

struct Seen {
  occlResult_t result;
  std::string message;
};

Seen AllReduce(const Rank& rank, size_t count) {
  DeviceBuffer buffer(count * 4);
  for (size_t i = 0; i < count; ++i) buffer.as<int32_t>()[i] = rank.rank + int32_t(i);
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  const occlResult_t called = occlAllReduce(buffer.device(), buffer.device(), count, occlInt32,
                                            occlSum, rank.comm, rank.stream, &options);
  if (called != occlSuccess) return {called, occlGetLastError(nullptr)};
  Seen seen = {occlRequestWait(request, 30'000), ""};
  const char* message = "";
  occlResult_t result = occlSuccess;
  EXPECT_EQ(occlRequestGetResult(request, &result, &message), occlSuccess);
  seen.message = message;
  occlRequestFree(request);
  for (size_t i = 0; result == occlSuccess && i < count; ++i) {
    EXPECT_EQ(buffer.as<int32_t>()[i], 2 * int32_t(i) + 1);
  }
  return seen;
}

// Runs an all_reduce of two ranks under the faults, inline, in slots, and direct.
void Expect(const occlFaults_t& faults, occlResult_t expected, const std::string& part) {
  for (size_t count : {size_t{2}, size_t{1000}, size_t{200'000}}) {
    ASSERT_EQ(occlSetFaults(nullptr), occlSuccess);
    RankOptions options;
    options.timeout_ms = expected == occlTimeout ? 200 : 20'000;
    ASSERT_EQ(occlSetFaults(&faults), occlSuccess);
    RunThreads(
        2,
        [&](const Rank& rank) {
          const Seen seen = AllReduce(rank, count);
          EXPECT_EQ(seen.result, expected) << seen.message;
          EXPECT_NE(seen.message.find(part), std::string::npos) << seen.message;
        },
        options);
  }
}

TEST_F(FaultyTest, DelayedOperationsSucceed) {
  occlFaults_t faults = NoFaults();
  faults.delay = 1;
  faults.delay_ns = 30'000'000;
  const int64_t begin_ms = NowMs();
  Expect(faults, occlSuccess, "");
  EXPECT_GE(NowMs() - begin_ms, 3 * 30);
  uint64_t counts[occlNumFaults];
  ASSERT_EQ(occlGetFaultCounts(counts), occlSuccess);
  EXPECT_EQ(counts[occlFaultDelay], 2u);
}

TEST_F(FaultyTest, DroppedOperationsEndAtTheDeadline) {
  occlFaults_t faults = NoFaults();
  faults.drop = 1;
  Expect(faults, occlTimeout, "timed out");
}

TEST_F(FaultyTest, TruncatedOperationsAreAMismatch) {
  occlFaults_t faults = NoFaults();
  faults.truncate = 1;
  Expect(faults, occlMismatch, "disagree about the count");
}

TEST_F(FaultyTest, AResetNamesTheRankAndTheSeed) {
  occlFaults_t faults = NoFaults();
  faults.reset = 1;
  Expect(faults, occlRemoteError, "was reset (a fault on request, seed 5)");
}

TEST_F(FaultyTest, MessagesAreHitToo) {
  for (bool truncates : {true, false}) {
    occlFaults_t faults = NoFaults();
    (truncates ? faults.truncate : faults.drop) = 1;
    ASSERT_EQ(occlSetFaults(&faults), occlSuccess);
    RankOptions rank_options;
    rank_options.timeout_ms = 200;
    RunThreads(
        2,
        [&](const Rank& rank) {
          DeviceBuffer buffer(400);
          occlRequest_t request = nullptr;
          occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
          options.request = &request;
          ASSERT_EQ(rank.rank == 0 ? occlSend(buffer.device(), 100, occlInt32, 1, 0, rank.comm,
                                              rank.stream, &options)
                                   : occlRecv(buffer.device(), 100, occlInt32, 0, 0, rank.comm,
                                              rank.stream, &options),
                    occlSuccess);
          EXPECT_EQ(occlRequestWait(request, 30'000), truncates ? occlMismatch : occlTimeout);
          occlRequestFree(request);
        },
        rank_options);
  }
}

}  // namespace
}  // namespace occl
