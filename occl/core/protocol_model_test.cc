// The flag protocols of the control segment, in every interleaving for small sizes. Each has a
// second form with its essential part left out, which must be found wrong: so the model can fail.
#include "occl/core/protocol_model.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace occl::model {
namespace {

std::string Explore(const char* name, std::vector<Program> programs, int words,
                    std::vector<Machine::Forbidden> forbidden = {}) {
  Machine machine(std::move(programs), words, std::move(forbidden));
  const std::string violation = machine.Explore();
  std::fprintf(stderr, "%s: %zu states%s%s\n", name, machine.states(),
               violation.empty() ? "" : ": ", violation.c_str());
  return violation;
}

// ---- core/bells.h: nobody sleeps through the word it waits for.

constexpr int kWord = 0, kSleepers = 1, kRings = 2;

Program Sleeper(bool announces_first) {
  Program program;
  const int again = 0;
  if (announces_first) program.push_back({Op::kAdd, kSleepers, 1});
  program.push_back({Op::kFence});
  program.push_back({Op::kLoad, kRings, 0});
  program.push_back({Op::kLoad, kWord, 1});
  const int at_branch = static_cast<int>(program.size());
  program.push_back({Op::kJumpIfLess, 1, 1, at_branch + 2});
  program.push_back({Op::kJump, 0});  // the word is there: to the end, filled in below
  if (!announces_first) program.push_back({Op::kAdd, kSleepers, 1});
  program.push_back({Op::kSleep, kRings, 0});
  program.push_back({Op::kAdd, kSleepers, -1});
  program.push_back({Op::kJump, again});
  program[at_branch + 1].a = static_cast<int>(program.size());
  return program;
}

Program Ringer(bool fences) {
  Program program = {{Op::kStore, kWord, 1}};
  if (fences) program.push_back({Op::kFence});
  program.push_back({Op::kLoad, kSleepers, 0});
  const int end = static_cast<int>(program.size()) + 3;
  program.push_back({Op::kJumpIfLess, 0, 1, end});
  program.push_back({Op::kAdd, kRings, 1});
  program.push_back({Op::kWake, kRings});
  return program;
}

TEST(Bells, NobodySleepsThroughItsWord) {
  EXPECT_EQ(Explore("bells", {Sleeper(true), Ringer(true)}, 3), "");
  EXPECT_EQ(Explore("bells, two sleepers", {Sleeper(true), Sleeper(true), Ringer(true)}, 3), "");
}

TEST(Bells, TheFenceAndTheAnnouncementAreNeeded) {
  EXPECT_NE(Explore("bells without the writer's fence", {Sleeper(true), Ringer(false)}, 3), "");
  EXPECT_NE(Explore("bells announced late", {Sleeper(false), Ringer(true)}, 3), "");
}

// ---- core/collective_op.cc: a place of the ring is filled again when all have passed it.

struct Ring {
  int ranks, places, rounds;
  int early = 0;  // how many rounds too early a place is taken for free
  bool data_first = true;

  int Data(int rank, int round) const { return (rank * places + round % places) * 2; }
  int Number(int rank, int round) const { return Data(rank, round) + 1; }
  int Done(int rank) const { return ranks * places * 2 + rank; }
  int Words() const { return ranks * places * 2 + ranks; }

  Program Rank(int rank) const {
    Program program;
    for (int round = 1; round <= rounds; ++round) {
      for (int peer = 0; round > places && peer < ranks; ++peer) {
        if (peer != rank) program.push_back({Op::kAwait, Done(peer), round - places - early});
      }
      const Instruction data = {Op::kStore, Data(rank, round), round};
      const Instruction number = {Op::kStore, Number(rank, round), round};
      program.push_back(data_first ? data : number);
      program.push_back(data_first ? number : data);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        program.push_back({Op::kAwait, Number(peer, round), round});
        program.push_back({Op::kLoad, Number(peer, round), 0});
        program.push_back({Op::kCheckEqual, 0, round});
        program.push_back({Op::kLoad, Data(peer, round), 0});
        program.push_back({Op::kCheckEqual, 0, round});
      }
      program.push_back({Op::kStore, Done(rank), round});
    }
    return program;
  }
  std::vector<Program> All() const {
    std::vector<Program> programs;
    for (int rank = 0; rank < ranks; ++rank) programs.push_back(Rank(rank));
    return programs;
  }
};

TEST(Rounds, EveryRankReadsTheDataOfItsRound) {
  const Ring two = {2, 4, 10};
  EXPECT_EQ(Explore("rounds, 2 ranks", two.All(), two.Words()), "");
  const Ring one_place = {2, 1, 4};
  EXPECT_EQ(Explore("rounds, one place", one_place.All(), one_place.Words()), "");
  const Ring three = {3, 2, 3};
  EXPECT_EQ(Explore("rounds, 3 ranks", three.All(), three.Words()), "");
}

TEST(Rounds, WaitingForThePlaceAndTheOrderOfStoresAreNeeded) {
  // A peer can be a round behind: it has not read what lies there.
  const Ring early = {2, 1, 3, 1};
  EXPECT_NE(Explore("a place taken too early", early.All(), early.Words()), "");
  const Ring number_first = {2, 2, 3, 0, false};
  EXPECT_NE(Explore("the number before the data", number_first.All(), number_first.Words()), "");
}

// ---- core/message_op.cc: staged messages, at most two chunks ahead of the receiver.

constexpr int kSent = 0, kTaken = 1, kChunk = 2;

Program StageSender(int chunks, int ahead) {
  Program program;
  for (int chunk = 1; chunk <= chunks; ++chunk) {
    program.push_back({Op::kAwait, kTaken, chunk - ahead});
    program.push_back({Op::kStore, kChunk + chunk % 2, chunk});
    program.push_back({Op::kStore, kSent, chunk});
  }
  return program;
}

Program StageReceiver(int chunks) {
  Program program;
  for (int chunk = 1; chunk <= chunks; ++chunk) {
    program.push_back({Op::kAwait, kSent, chunk});
    program.push_back({Op::kLoad, kChunk + chunk % 2, 0});
    program.push_back({Op::kCheckEqual, 0, chunk});
    program.push_back({Op::kStore, kTaken, chunk});
  }
  return program;
}

TEST(Stages, ChunksArriveWhole) {
  EXPECT_EQ(Explore("stages", {StageSender(6, 2), StageReceiver(6)}, 4), "");
  EXPECT_NE(Explore("stages, three ahead", {StageSender(6, 3), StageReceiver(6)}, 4), "");
}

// ---- core/quarantine.h: after a failure a result is given back only when no peer writes it.
//
// The owner has posted its entry of the round. It fails (a deadline), and frees the result at once
// if the writer's entry is missing, else when the writer is done or has quit. The writer posts its
// entry and, if there is no failure, writes two blocks.

constexpr int kEntry = 0, kError = 1, kDone = 2, kResult = 3, kFreed = 4;

Program Owner(bool fences) {
  Program program = {{Op::kStore, kError, 1}};
  if (fences) program.push_back({Op::kFence});
  program.push_back({Op::kLoad, kEntry, 0});
  const int at = static_cast<int>(program.size());
  program.push_back({Op::kJumpIfLess, 0, 1, at + 2});
  program.push_back({Op::kAwait, kDone, 1});
  program.push_back({Op::kAdd, kFreed, 1});
  return program;
}

Program Writer(bool fences, bool looks) {
  Program program = {{Op::kStore, kEntry, 1}};
  if (fences) program.push_back({Op::kFence});
  program.push_back({Op::kLoad, kError, 0});
  const int at = static_cast<int>(program.size());
  if (looks) {
    program.push_back({Op::kJumpIfLess, 0, 1, at + 2});
    program.push_back({Op::kJump, at + 4});
  }
  program.push_back({Op::kStore, kResult, 1});
  program.push_back({Op::kStore, kResult, 2});
  program.push_back({Op::kStore, kDone, 1});
  return program;
}

TEST(Quarantine, NoResultIsWrittenAfterItWasGivenBack) {
  const std::vector<Machine::Forbidden> rule = {{kResult, kFreed}};
  EXPECT_EQ(Explore("quarantine", {Owner(true), Writer(true, true)}, 5, rule), "");
  EXPECT_NE(Explore("without the owner's fence", {Owner(false), Writer(true, true)}, 5, rule), "");
  EXPECT_NE(Explore("without the writer's fence", {Owner(true), Writer(false, true)}, 5, rule), "");
  EXPECT_NE(Explore("without a look", {Owner(true), Writer(true, false)}, 5, rule), "");
}

}  // namespace
}  // namespace occl::model
