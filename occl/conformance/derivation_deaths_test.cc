// Ranks as processes that are killed where the others split or shrink their communicator.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "occl/conformance/rank_programs.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

// Rank 0 lives and does not come, as one that has been told of the death elsewhere. Rank 2 dies
// before it comes, or after.
class DeathsInDerivation : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(DeathsInDerivation, AreToldToThoseThatWaitForAnotherRank) {
  const auto [splits, comes] = GetParam();
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
    occlComm_t comm = nullptr;
    if (const int failed = Join(rank, 3, id, 60'000, &comm)) return failed;
    if (rank == 0 || (rank == 2 && !comes)) sleep(1000);
    occlComm_t made = nullptr;
    const occlResult_t result =
        splits ? occlCommSplit(comm, 0, rank, &made, nullptr)
               : occlCommShrink(comm, nullptr, 0, &made, nullptr, OCCL_SHRINK_DEFAULT);
    const std::string message = occlGetLastError(nullptr);
    if (result == occlRemoteError && message.find("rank 2 (pid ") != std::string::npos) {
      return kFine;
    }
    std::fprintf(stderr, "result %d, message %s\n", result, message.c_str());
    return result == occlRemoteError ? kWrongMessage : kWrongResult;
  });
  usleep(500'000);
  ranks.Kill(2, SIGKILL);
  EXPECT_EQ(ranks.Wait(1), kFine);
}

INSTANTIATE_TEST_SUITE_P(SplitOrShrinkComesOrNot, DeathsInDerivation,
                         testing::Combine(testing::Bool(), testing::Bool()));

// What rank 1 does when it has been told that rank 2 is dead, and what rank 0 comes to then.
enum class Reaction { kDestroys, kAborts, kShrinks };

class DeathsThatOthersReactTo : public testing::TestWithParam<std::tuple<Reaction, bool>> {
 protected:
  static int BeTold(occlComm_t comm, bool splits, occlResult_t expected) {
    std::string message;
    occlResult_t result = occlSuccess;
    if (splits) {
      occlComm_t made = nullptr;
      result = occlCommSplit(comm, 0, 0, &made, nullptr);
      message = occlGetLastError(nullptr);
    } else {
      result = ReduceUntilFailure(comm, 1000, &message);
    }
    if (result == expected && message.find("rank 2 (pid ") != std::string::npos) return kFine;
    std::fprintf(stderr, "result %d, message %s\n", result, message.c_str());
    return result == expected ? kWrongMessage : kWrongResult;
  }
  // It ends in the shrink, to which rank 0 does not come.
  static void React(Reaction reaction, occlComm_t comm, SharedStore& marks) {
    const int dead = 2;
    occlComm_t made = nullptr;
    if (reaction == Reaction::kDestroys) occlCommDestroy(comm);
    if (reaction == Reaction::kAborts) occlCommAbort(comm, "the test's");
    if (reaction != Reaction::kShrinks) marks.Tell("rank 1 has reacted");
    if (reaction == Reaction::kShrinks) {
      occlCommShrink(comm, &dead, 1, &made, nullptr, OCCL_SHRINK_ABORT);
    }
  }
  static bool AwaitReaction(Reaction reaction, occlComm_t comm, SharedStore& marks) {
    if (reaction != Reaction::kShrinks) return marks.Await("rank 1 has reacted");
    occlResult_t state = occlSuccess;
    for (int i = 0; i < 30'000 && state == occlSuccess; ++i) {
      usleep(1000);
      if (occlCommGetAsyncError(comm, &state) != occlSuccess) return false;
    }
    return state != occlSuccess;
  }
};

TEST_P(DeathsThatOthersReactTo, AreNamedToThoseThatComeLater) {
  const auto [reaction, splits] = GetParam();
  SharedStore marks;
  RankProcesses ranks(
      3, [&, reaction = reaction, splits = splits](int rank, const auto& id) -> int {
        occlComm_t comm = nullptr;
        if (const int failed = Join(rank, 3, id, 60'000, &comm)) return failed;
        if (rank == 2) sleep(1000);
        if (rank == 1) {
          if (!marks.Await("rank 2 is dead")) return kLate;
          // A split, for its failure is not the communicator's.
          if (const int wrong = BeTold(comm, true, occlRemoteError)) return wrong;
          React(reaction, comm, marks);
          return marks.Await("over") ? kFine : kLate;
        }
        if (!AwaitReaction(reaction, comm, marks)) return kLate;
        return BeTold(comm, splits,
                      reaction == Reaction::kDestroys ? occlRemoteError : occlAborted);
      });
  usleep(500'000);
  ranks.Kill(2, SIGKILL);
  EXPECT_EQ(ranks.Wait(2), -1);
  marks.Tell("rank 2 is dead");
  EXPECT_EQ(ranks.Wait(0), kFine);
  marks.Tell("over");
  EXPECT_EQ(ranks.Wait(1), kFine);
}

INSTANTIATE_TEST_SUITE_P(ReactionAndSplitOrReduce, DeathsThatOthersReactTo,
                         testing::Combine(testing::Values(Reaction::kDestroys, Reaction::kAborts,
                                                          Reaction::kShrinks),
                                          testing::Bool()));

// Ranks of another group may die, or fail and try again, when they have come: this one needs them
// no more.
TEST(Deaths, OfARankOfAnotherColorDoNotEndASplit) {
  SharedStore marks;
  RankProcesses ranks(4, [&](int rank, const occlUniqueId& id) -> int {
    occlComm_t comm = nullptr;
    if (const int failed = Join(rank, 4, id, 60'000, &comm)) return failed;
    if (rank == 0 && !marks.Await("rank 2 was told")) return kLate;
    for (int attempt = 0; attempt < (rank == 2 ? 3 : 1); ++attempt) {
      occlComm_t made = nullptr;
      const occlResult_t result = occlCommSplit(comm, rank / 2, rank, &made, nullptr);
      const std::string message = result == occlSuccess ? "" : occlGetLastError(nullptr);
      const bool told = message.find("rank 3 (pid ") != std::string::npos;
      if (rank == 2 ? !told : result != occlSuccess) {
        std::fprintf(stderr, "rank %d: result %d, message %s\n", rank, result, message.c_str());
        return kWrongResult;
      }
    }
    if (rank == 2) marks.Tell("rank 2 was told");
    return marks.Await(rank == 2 ? "over" : "rank 2 was told") ? kFine : kLate;
  });
  usleep(500'000);
  ranks.Kill(3, SIGKILL);
  EXPECT_EQ(ranks.Wait(3), -1);
  EXPECT_EQ(ranks.Wait(0), kFine);
  EXPECT_EQ(ranks.Wait(1), kFine);
  marks.Tell("over");
  EXPECT_EQ(ranks.Wait(2), kFine);
}

}  // namespace
}  // namespace occl_conformance
