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

constexpr int kWord = 0, kSleepers = 1, kRings = 2, kUnheard = 3, kBellWords = 4;

enum class Announces { kFirst, kLate, kBeforeReadingRings };

// Waits until `ringers` have come.
Program Sleeper(Announces announces, int ringers = 1) {
  Program program;
  const auto announce = [&program] {
    program.push_back({Op::kStore, kUnheard, 1});
    program.push_back({Op::kAdd, kSleepers, 1});
  };
  if (announces == Announces::kBeforeReadingRings) announce();
  program.push_back({Op::kLoad, kRings, 0});
  if (announces == Announces::kFirst) announce();
  program.push_back({Op::kFence});
  program.push_back({Op::kLoad, kWord, 1});
  const int at_branch = static_cast<int>(program.size());
  program.push_back({Op::kJumpIfLess, 1, ringers, at_branch + 2});
  program.push_back({Op::kJump, 0});  // the word is there: to the end, filled in below
  if (announces == Announces::kLate) announce();
  program.push_back({Op::kSleep, kRings, 0});
  program.push_back({Op::kAdd, kSleepers, -1});
  program.push_back({Op::kJump, 0});
  program[at_branch + 1].a = static_cast<int>(program.size());
  return program;
}

// first: the store or the addition to the word.
Program Ringer(Instruction first, bool fences, bool clears_first = true) {
  Program program = {first};
  if (fences) program.push_back({Op::kFence});
  const int end = static_cast<int>(program.size()) + 7;
  program.push_back({Op::kLoad, kSleepers, 0});
  program.push_back({Op::kJumpIfLess, 0, 1, end});
  program.push_back({Op::kLoad, kUnheard, 0});
  program.push_back({Op::kJumpIfLess, 0, 1, end});
  const Instruction clear = {Op::kStore, kUnheard, 0}, ring = {Op::kAdd, kRings, 1};
  program.push_back(clears_first ? clear : ring);
  program.push_back(clears_first ? ring : clear);
  program.push_back({Op::kWake, kRings});
  return program;
}

TEST(Bells, NobodySleepsThroughItsWord) {
  const Program sleeper = Sleeper(Announces::kFirst);
  const Program ringer = Ringer({Op::kStore, kWord, 1}, true);
  EXPECT_EQ(Explore("bells", {sleeper, ringer}, kBellWords), "");
  EXPECT_EQ(Explore("bells, two sleepers", {sleeper, sleeper, ringer}, kBellWords), "");
  const Program one_of_two = Ringer({Op::kAdd, kWord, 1}, true);
  EXPECT_EQ(Explore("bells, two ringers", {Sleeper(Announces::kFirst, 2), one_of_two, one_of_two},
                    kBellWords),
            "");
}

TEST(Bells, TheFenceTheAnnouncementAndTheirOrderAreNeeded) {
  const Instruction store = {Op::kStore, kWord, 1}, add = {Op::kAdd, kWord, 1};
  EXPECT_NE(Explore("bells without the writer's fence",
                    {Sleeper(Announces::kFirst), Ringer(store, false)}, kBellWords),
            "");
  EXPECT_NE(
      Explore("bells announced late", {Sleeper(Announces::kLate), Ringer(store, true)}, kBellWords),
      "");
  EXPECT_NE(
      Explore("bells announced before reading rings",
              {Sleeper(Announces::kBeforeReadingRings, 2), Ringer(add, true), Ringer(add, true)},
              kBellWords),
      "");
  EXPECT_NE(
      Explore("bells cleared after ringing",
              {Sleeper(Announces::kFirst, 2), Ringer(add, true, false), Ringer(add, true, false)},
              kBellWords),
      "");
}

// ---- core/collective_op.cc, RingForEntry: of two ranks that post, only one that sees both entries
// rings, and none sleeps for ever.

struct Posters {
  bool fences = true;  // between announcing oneself and the last look

  static int Entry(int rank) { return rank; }
  static int Sleepers(int rank) { return 2 + rank; }
  static int Rings(int rank) { return 4 + rank; }

  Program Rank(int rank) const {
    const int peer = 1 - rank;
    Program program = {
        {Op::kStore, Entry(rank), 1},
        {Op::kLoad, Entry(peer), 0},  // 1
        {Op::kJumpIfLess, 0, 1, 4},
        {Op::kJump, 13},
        {Op::kLoad, Rings(rank), 1},  // 4
        {fences ? Op::kAdd : Op::kStore, Sleepers(rank), 1},
        {fences ? Op::kFence : Op::kJump, 7},
        {Op::kLoad, Entry(peer), 0},  // 7
        {Op::kJumpIfLess, 0, 1, 10},
        {Op::kJump, 11},
        {Op::kSleep, Rings(rank), 1},  // 10
        {fences ? Op::kAdd : Op::kStore, Sleepers(rank), fences ? -1 : 0},
        {Op::kJump, 1},
        {Op::kFence},  // 13
        {Op::kLoad, Sleepers(peer), 0},
        {Op::kJumpIfLess, 0, 1, 18},
        {Op::kAdd, Rings(peer), 1},
        {Op::kWake, Rings(peer)},
    };
    return program;
  }
};

TEST(Entries, WhoSeesAllOfThemTellsTheOthers) {
  const Posters good, bad = {false};
  EXPECT_EQ(Explore("entries", {good.Rank(0), good.Rank(1)}, 6), "");
  EXPECT_NE(Explore("entries without a fence", {bad.Rank(0), bad.Rank(1)}, 6), "");
}

// ---- core/collective_jobs.cc: each job is done once, and who sleeps until all are done is woken.
//
// Two ranks at work on two jobs, and one asleep.

struct Jobs {
  bool fences = true;  // between ending a job and looking whether all are done
  bool swaps = true;   // takes a job by compare-and-swap

  static int Taken(int job) { return job; }
  static int Done(int job) { return 2 + job; }
  static int Work(int job) { return 4 + job; }
  static constexpr int kAsleep = 6, kBell = 7, kWords = 8;

  void Append(Program* program, int rank, int job) const {
    const int at = static_cast<int>(program->size());
    const int other = 1 - job, next = at + 15, id = rank + 1;
    const Program steps = {
        {Op::kLoad, Taken(job), 0},
        {Op::kJumpIfLess, 0, 1, at + 3},
        {Op::kJump, next},
        {swaps ? Op::kSwap : Op::kStore, Taken(job), id},  // at + 3
        {Op::kLoad, Taken(job), 0},
        {Op::kJumpIfLess, 0, 2, rank == 0 ? at + 7 : next},
        {Op::kJump, rank == 0 ? next : at + 7},
        {Op::kAdd, Work(job), 1},  // at + 7
        {Op::kStore, Done(job), 1},
        {fences ? Op::kFence : Op::kJump, at + 10},
        {Op::kLoad, Done(other), 0},  // at + 10
        {Op::kJumpIfLess, 0, 1, next},
        {Op::kLoad, kAsleep, 0},
        {Op::kAdd, kBell, 1},
        {Op::kWake, kBell},
    };
    program->insert(program->end(), steps.begin(), steps.end());
  }
  Program Worker(int rank) const {
    Program program;
    Append(&program, rank, rank);
    Append(&program, rank, 1 - rank);
    for (int job = 0; job < 2; ++job) program.push_back({Op::kAwait, Done(job), 1});
    for (int job = 0; job < 2; ++job) {
      program.push_back({Op::kLoad, Work(job), 0});
      program.push_back({Op::kCheckEqual, 0, 1});
    }
    return program;
  }
  Program Idle() const {
    return {
        {Op::kLoad, kBell, 1},   {Op::kAdd, kAsleep, 1},
        {Op::kLoad, Done(0), 0}, {Op::kJumpIfLess, 0, 1, 7},
        {Op::kLoad, Done(1), 0}, {Op::kJumpIfLess, 0, 1, 7},
        {Op::kJump, 10},         {Op::kSleep, kBell, 1},  // 7
        {Op::kAdd, kAsleep, -1}, {Op::kJump, 0},
    };
  }
  std::vector<Program> All() const { return {Worker(0), Worker(1), Idle()}; }
};

TEST(Jobs, EachIsDoneOnceAndTheSleeperIsWoken) {
  EXPECT_EQ(Explore("jobs", Jobs{}.All(), Jobs::kWords), "");
  EXPECT_NE(Explore("jobs without a fence", Jobs{false, true}.All(), Jobs::kWords), "");
  EXPECT_NE(Explore("jobs taken by a store", Jobs{true, false}.All(), Jobs::kWords), "");
}

// ---- core/collective_op.cc: a place of the ring is filled again when all have passed it.

struct Ring {
  int ranks, places, rounds;
  int early = 0;  // how many rounds too early a place is taken for free
  bool data_first = true;
  // All exchange with all: a peer's entry of the last round says that it has done the one before.
  bool by_entries = false;

  int Data(int rank, int round) const { return (rank * places + round % places) * 2; }
  int Number(int rank, int round) const { return Data(rank, round) + 1; }
  int Done(int rank) const { return ranks * places * 2 + rank; }
  int Words() const { return ranks * places * 2 + ranks; }

  Program Rank(int rank) const {
    Program program;
    for (int round = 1; round <= rounds; ++round) {
      for (int peer = 0; !by_entries && round > places && peer < ranks; ++peer) {
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
  const Ring entries = {2, 2, 6, 0, true, true};
  EXPECT_EQ(Explore("places free by the entries", entries.All(), entries.Words()), "");
}

TEST(Rounds, WaitingForThePlaceAndTheOrderOfStoresAreNeeded) {
  // A peer can be a round behind: it has not read what lies there.
  const Ring early = {2, 1, 3, 1};
  EXPECT_NE(Explore("a place taken too early", early.All(), early.Words()), "");
  const Ring number_first = {2, 2, 3, 0, false};
  EXPECT_NE(Explore("the number before the data", number_first.All(), number_first.Words()), "");
  const Ring entries = {2, 1, 3, 0, true, true};
  EXPECT_NE(Explore("entries and one place", entries.All(), entries.Words()), "");
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
