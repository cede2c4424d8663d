// Ranks that do not mean the same communicator: all of them hear of it, at once.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr int kRanks = 3;

occlConfig_t Config(const std::string& members) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = 60'000;
  config.initTimeout_ms = 60'000;
  config.name = "test";
  config.members = members.c_str();
  return config;
}

struct Outcome {
  occlResult_t result = occlSuccess;
  std::string message;
};

Outcome Told(occlResult_t result) {
  return {result, result == occlSuccess ? "" : occlGetLastError(nullptr)};
}

// What each rank of kRanks is told, rank r with members[r].
using Members = std::vector<std::string>;
using Way = std::vector<Outcome> (*)(const Members& members);

template <typename Body>
std::vector<Outcome> InThreads(const Body& body) {
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] { outcomes[r] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> Together(const Members& members) {
  MemoryStore memory;
  return InThreads([&](int r) {
    const occlStore_t store = memory.AsStore();
    const occlConfig_t config = Config(members[r]);
    occlComm_t comm = nullptr;
    const Outcome outcome = Told(occlCommInitRankStore(&comm, kRanks, r, &store, &config));
    EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
    return outcome;
  });
}

std::vector<Outcome> ByUniqueId(const Members& members) {
  occlUniqueId id;
  EXPECT_EQ(occlGetUniqueId(&id), occlSuccess);
  return InThreads([&](int r) {
    const occlConfig_t config = Config(members[r]);
    occlComm_t comm = nullptr;
    const Outcome outcome = Told(occlCommInitRank(&comm, kRanks, id, r, &config));
    EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
    return outcome;
  });
}

std::vector<Outcome> Early(const Members& members) {
  MemoryStore memory;
  return InThreads([&](int r) {
    const occlStore_t store = memory.AsStore();
    occlConfig_t config = Config(members[r]);
    config.early = 1;
    occlComm_t comm = nullptr;
    Outcome outcome = Told(occlCommInitRankStore(&comm, kRanks, r, &store, &config));
    if (outcome.result != occlSuccess) return outcome;
    outcome = Told(occlCommAwaitRanks(comm, &store, 60'000));
    EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
    return outcome;
  });
}

std::vector<Outcome> BySplit(const Members& members) {
  std::vector<Outcome> outcomes(kRanks);
  RunThreads(kRanks, [&](const Rank& rank) {
    const occlConfig_t config = Config(members[rank.rank]);
    occlComm_t comm = nullptr;
    outcomes[rank.rank] = Told(occlCommSplit(rank.comm, 0, 0, &comm, &config));
    EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
  });
  return outcomes;
}

// Rank 2 comes when the init of the others has failed.
TEST(AgreementOfLate, ARankThatComesAfterwardsIsTold) {
  MemoryStore memory;
  const Members members = {"4, 7, 9", "7, 4, 9", "4, 7, 9"};
  const auto init = [&](int r, const std::string& told) {
    const occlStore_t store = memory.AsStore();
    const occlConfig_t config = Config(told);
    occlComm_t comm = nullptr;
    const Outcome outcome = Told(occlCommInitRankStore(&comm, kRanks, r, &store, &config));
    EXPECT_EQ(occlCommDestroy(comm), occlSuccess);
    return outcome;
  };
  std::vector<Outcome> outcomes(kRanks);
  std::thread first([&] { outcomes[0] = init(0, members[0]); });
  std::thread second([&] { outcomes[1] = init(1, members[1]); });
  first.join();
  second.join();
  outcomes[2] = init(2, members[2]);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, occlMismatch) << outcome.message;
    EXPECT_NE(outcome.message.find("members = [7, 4, 9]"), std::string::npos) << outcome.message;
  }
  // They try again, and those who know of the failure come first.
  std::thread third([&] { outcomes[2] = init(2, ""); });
  std::thread fourth([&] { outcomes[1] = init(1, ""); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  outcomes[0] = init(0, "");
  third.join();
  fourth.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, occlSuccess) << outcome.message;
  }
}

class Agreement : public testing::TestWithParam<Way> {
 protected:
  void ExpectAllAreTold(const Members& members, const Members& shown) {
    const std::vector<Outcome> outcomes = GetParam()(members);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(outcomes[r].result, occlMismatch) << r << ": " << outcomes[r].message;
      for (const std::string& text : shown) {
        EXPECT_NE(outcomes[r].message.find("members = [" + text + "]"), std::string::npos)
            << r << ": " << outcomes[r].message;
      }
    }
  }
};

TEST_P(Agreement, SameMembers) {
  for (const Outcome& outcome : GetParam()({"4, 7, 9", "4, 7, 9", "4, 7, 9"})) {
    EXPECT_EQ(outcome.result, occlSuccess) << outcome.message;
  }
}

TEST_P(Agreement, OneRankHasThemInAnotherOrder) {
  ExpectAllAreTold({"4, 7, 9", "4, 7, 9", "7, 4, 9"}, {"4, 7, 9", "7, 4, 9"});
  ExpectAllAreTold({"7, 4, 9", "4, 7, 9", "4, 7, 9"}, {"4, 7, 9", "7, 4, 9"});
}

TEST_P(Agreement, OneRankNamesNone) {
  ExpectAllAreTold({"4, 7, 9", "", "4, 7, 9"}, {"4, 7, 9", ""});
}

TEST_P(Agreement, ListsThatDifferWhereAMessageDoesNotShowIt) {
  const std::string list(5000, '7');
  const Members members = {list + "1", list + "1", list + "2"};
  ExpectAllAreTold(members, {list.substr(0, 116) + "..."});
}

std::string NameOf(const testing::TestParamInfo<Way>& info) {
  static const char* const kNames[] = {"Together", "ByUniqueId", "Early", "Split"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Ways, Agreement, testing::Values(&Together, &ByUniqueId, &Early, &BySplit),
                         &NameOf);

}  // namespace
}  // namespace occl_conformance
