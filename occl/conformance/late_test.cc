// Ranks of a communicator whose ranks join one by one that come after others have left, or died:
// each is a process of its own.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

enum Exit { kFine = 0, kFailed = 10, kTold = 11, kNotTold = 12 };

constexpr size_t kCount = 5000;

occlConfig_t Config() {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = 60'000;
  config.initTimeout_ms = 60'000;
  config.name = "test";
  config.early = 1;
  return config;
}

// A rank in its process.
class Member {
 public:
  Member(SharedStore* shared, int nranks, int rank)
      : store_(shared->AsStore()), nranks_(nranks), rank_(rank) {
    const occlConfig_t config = Config();
    EXPECT_EQ(orStreamCreate(&stream_), orSuccess);
    result_ = occlCommInitRankStore(&comm_, nranks, rank, &store_, &config);
    if (result_ != occlSuccess) Show();
  }
  bool ok() const { return result_ == occlSuccess; }

  bool Send(int peer, int32_t first) {
    DeviceBuffer data(kCount * 4);
    for (size_t i = 0; i < kCount; ++i) data.as<int32_t>()[i] = first + static_cast<int32_t>(i);
    return ok() && Complete(&occlSendTo, data.device(), peer) == occlSuccess;
  }
  bool Receive(int peer, int32_t first) {
    DeviceBuffer data(kCount * 4);
    if (!ok() || Complete(&occlReceiveFrom, data.device(), peer) != occlSuccess) return false;
    for (size_t i = 0; i < kCount; ++i) {
      if (data.as<int32_t>()[i] != first + static_cast<int32_t>(i)) return false;
    }
    return true;
  }
  // Whether what needs `peer` ends with an error that says `what`.
  Exit NeedsInVain(int peer, const std::string& what) {
    DeviceBuffer data(kCount * 4);
    if (!ok() || Complete(&occlReceiveFrom, data.device(), peer) != occlRemoteError) return kFailed;
    return message_.find(what) != std::string::npos ? kTold : kNotTold;
  }
  // In order: says so in the store, and destroys the communicator.
  bool Leave() {
    const occlConfig_t config = Config();
    return occlCommLeaveInit(nranks_, rank_, &store_, &config, 1) == occlSuccess && Destroy();
  }
  bool Destroy() { return occlCommDestroy(comm_) == occlSuccess; }
  occlComm_t comm() const { return comm_; }
  const occlStore_t* store() const { return &store_; }

 private:
  using Call = occlResult_t (*)(void*, int, occlComm_t, orStream_t, const occlCallOptions_t*);
  static occlResult_t occlSendTo(void* data, int peer, occlComm_t comm, orStream_t stream,
                                 const occlCallOptions_t* options) {
    return occlSend(data, kCount, occlInt32, peer, 0, comm, stream, options);
  }
  static occlResult_t occlReceiveFrom(void* data, int peer, occlComm_t comm, orStream_t stream,
                                      const occlCallOptions_t* options) {
    return occlRecv(data, kCount, occlInt32, peer, 0, comm, stream, options);
  }
  occlResult_t Complete(Call call, void* data, int peer) {
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    occlResult_t result = call(data, peer, comm_, stream_, &options);
    if (result == occlSuccess) {
      result = occlRequestWait(request, 60'000);
      const char* text = "";
      occlResult_t same = occlSuccess;
      occlRequestGetResult(request, &same, &text);
      message_ = text;
      occlRequestFree(request);
    } else {
      message_ = occlGetLastError(nullptr);
    }
    if (result != occlSuccess) std::fprintf(stderr, "rank %d: %s\n", rank_, message_.c_str());
    return result;
  }
  void Show() { std::fprintf(stderr, "rank %d: %s\n", rank_, occlGetLastError(nullptr)); }

  const occlStore_t store_;
  const int nranks_;
  const int rank_;
  occlResult_t result_;
  occlComm_t comm_ = nullptr;
  orStream_t stream_ = nullptr;
  std::string message_;
};

// Names of all sockets at which ranks are let in, in this network namespace.
std::set<std::string> BoundSockets() {
  std::set<std::string> names;
  std::ifstream table("/proc/net/unix");
  std::string line;
  while (std::getline(table, line)) {
    const size_t at = line.find("@occl-");
    if (at != std::string::npos) names.insert(line.substr(at + 1));
  }
  return names;
}

// Connects, without a word.
std::vector<int> ConnectOften(int times) {
  rlimit limit = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> sockets;
  for (const std::string& name : BoundSockets()) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    for (int i = 0; i < times; ++i) {
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      if (fd < 0) break;
      sockets.push_back(fd);
      // Waits while the backlog is full.
      if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) break;
    }
  }
  return sockets;
}

// Marks and pids of ranks for each other.
void TellPids(SharedStore* shared, const RankProcesses& ranks, int nranks) {
  const occlStore_t store = shared->AsStore();
  for (int r = 0; r < nranks; ++r) {
    const int64_t pid = ranks.pid(r);
    store.set(store.context, ("pid of " + std::to_string(r)).c_str(), &pid, sizeof(pid));
  }
}
std::string NameOf(SharedStore* shared, int rank) {
  const occlStore_t store = shared->AsStore();
  int64_t pid = 0;
  size_t size = 0;
  store.get(store.context, ("pid of " + std::to_string(rank)).c_str(), &pid, sizeof(pid), &size,
            60'000);
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ")";
}

constexpr int kKilled = -1;
constexpr const char* kLeft = " has destroyed the communicator";
constexpr const char* kDied = " has died";

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

// Rank 0 comes first, talks to rank 3, and leaves, or is killed. Ranks 1 and 2 come then.
void LateRanksTalk(bool killed, bool joined_rank_lives) {
  SharedStore shared;
  RankProcesses ranks(4, [&](int rank, const occlUniqueId&) -> int {
    if ((rank == 1 || rank == 2) && !shared.Await("0 has gone")) return kFailed;
    if (rank == 3 && !shared.Await("0 is there")) return kFailed;
    Member member(&shared, 4, rank);
    if (!member.ok()) return kFailed;
    if (rank == 0) {
      shared.Tell("0 is there");
      if (!member.Send(3, 10)) return kFailed;
      if (killed) Die();
      return member.Leave() ? kFine : kFailed;
    }
    if (rank == 3) {
      if (!member.Receive(0, 10)) return kFailed;
      if (!joined_rank_lives) return member.Leave() ? kFine : kFailed;
      return member.Send(1, 20) && shared.Await("over") && member.Leave() ? kFine : kFailed;
    }
    if (rank == 2) return member.Send(1, 30) && shared.Await("over") ? kFine : kFailed;
    if (!member.Receive(2, 30) || (joined_rank_lives && !member.Receive(3, 20))) return kFailed;
    const Exit told = member.NeedsInVain(0, NameOf(&shared, 0) + (killed ? kDied : kLeft));
    shared.Tell("over");
    return told == kTold ? kFine : told;
  });
  TellPids(&shared, ranks, 4);
  EXPECT_EQ(ranks.Wait(0, 90'000), killed ? kKilled : kFine);
  if (!joined_rank_lives) {
    EXPECT_EQ(ranks.Wait(3, 90'000), kFine);
  }
  shared.Tell("0 has gone");
  for (const int rank : {1, 2}) EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
  if (joined_rank_lives) {
    EXPECT_EQ(ranks.Wait(3, 90'000), kFine);
  }
}

TEST(Late, TheFirstHasLeftAndAnotherLives) { LateRanksTalk(false, true); }
TEST(Late, TheFirstWasKilledAndAnotherLives) { LateRanksTalk(true, true); }
TEST(Late, AllWhoHadJoinedHaveLeft) { LateRanksTalk(false, false); }
TEST(Late, TheFirstWasKilledAndTheOtherHasLeft) { LateRanksTalk(true, false); }

TEST(Late, WhoNeedsAllIsToldWhoHasLeft) {
  SharedStore shared;
  RankProcesses ranks(2, [&](int rank, const occlUniqueId&) -> int {
    if (rank == 1 && !shared.Await("0 has gone")) return kFailed;
    Member member(&shared, 2, rank);
    if (rank == 0) return member.ok() && member.Leave() ? kFine : kFailed;
    if (occlCommAwaitRanks(member.comm(), member.store(), 60'000) != occlRemoteError) {
      return kFailed;
    }
    const std::string told = occlGetLastError(nullptr);
    std::fprintf(stderr, "%s\n", told.c_str());
    return told.find(NameOf(&shared, 0) + kLeft) != std::string::npos ? kFine : kNotTold;
  });
  TellPids(&shared, ranks, 2);
  EXPECT_EQ(ranks.Wait(0, 90'000), kFine);
  shared.Tell("0 has gone");
  EXPECT_EQ(ranks.Wait(1, 90'000), kFine);
}

// Ranks 0 and 3 talk, and have both gone when ranks 1 and 2 come: rank 3, which was not the first,
// was killed.
void LateRanksMissBoth(bool first_killed) {
  SharedStore shared;
  RankProcesses ranks(4, [&](int rank, const occlUniqueId&) -> int {
    if ((rank == 1 || rank == 2) && !shared.Await("both have gone")) return kFailed;
    if (rank == 3 && !shared.Await("0 is there")) return kFailed;
    Member member(&shared, 4, rank);
    if (!member.ok()) return kFailed;
    if (rank == 0) {
      shared.Tell("0 is there");
      if (!member.Send(3, 10)) return kFailed;
      if (first_killed) Die();
      return member.Leave() ? kFine : kFailed;
    }
    if (rank == 3) {
      if (!member.Receive(0, 10)) return kFailed;
      Die();
    }
    if (rank == 2) return member.Send(1, 30) && shared.Await("over") ? kFine : kFailed;
    if (!member.Receive(2, 30)) return kFailed;
    const Exit told = member.NeedsInVain(3, NameOf(&shared, 3) + kDied);
    shared.Tell("over");
    return told == kTold ? kFine : told;
  });
  TellPids(&shared, ranks, 4);
  EXPECT_EQ(ranks.Wait(0, 90'000), first_killed ? kKilled : kFine);
  EXPECT_EQ(ranks.Wait(3, 90'000), kKilled);
  shared.Tell("both have gone");
  for (const int rank : {1, 2}) EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
}

TEST(Late, TheFirstHasLeftAndTheOtherWasKilled) { LateRanksMissBoth(false); }
TEST(Late, AllWhoHadJoinedWereKilled) { LateRanksMissBoth(true); }

// One of them makes the next segment, and all find it.
TEST(Late, ManyComeAtOnceWhenAllWhoHadJoinedHaveLeft) {
  constexpr int kRanks = 6;
  for (int round = 0; round < 10; ++round) {
    SharedStore shared;
    RankProcesses ranks(kRanks, [&](int rank, const occlUniqueId&) -> int {
      if (rank != 0 && !shared.Await("0 has gone")) return kFailed;
      Member member(&shared, kRanks, rank);
      if (!member.ok()) return kFailed;
      if (rank == 0) return member.Leave() ? kFine : kFailed;
      const int next = rank + 1 < kRanks ? rank + 1 : 1;
      const int previous = rank > 1 ? rank - 1 : kRanks - 1;
      const bool good = rank % 2 == 0
                            ? member.Send(next, rank) && member.Receive(previous, previous)
                            : member.Receive(previous, previous) && member.Send(next, rank);
      return good && member.Leave() ? kFine : kFailed;
    });
    EXPECT_EQ(ranks.Wait(0, 90'000), kFine);
    shared.Tell("0 has gone");
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
    if (testing::Test::HasFailure()) return;
  }
}

// Pairs that come when the pair before has gone, each in a segment of its own.
TEST(Late, GenerationAfterGeneration) {
  SharedStore shared;
  constexpr int kRanks = 8;
  RankProcesses ranks(kRanks, [&](int rank, const occlUniqueId&) -> int {
    if (rank >= 2 && !shared.Await("pair " + std::to_string(rank / 2 - 1))) return kFailed;
    Member member(&shared, kRanks, rank);
    if (rank % 2 == 0) return member.Send(rank + 1, rank) && member.Leave() ? kFine : kFailed;
    if (!member.Receive(rank - 1, rank - 1)) return kFailed;
    if (rank + 1 < kRanks) return member.Leave() ? kFine : kFailed;
    return member.NeedsInVain(2, NameOf(&shared, 2) + kLeft) == kTold ? kFine : kNotTold;
  });
  TellPids(&shared, ranks, kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
    if (rank % 2 == 1) shared.Tell("pair " + std::to_string(rank / 2));
  }
}

// Pairs that come when the pair before was killed. The last misses `missed`.
void KilledPairsMiss(int missed) {
  SharedStore shared;
  constexpr int kRanks = 6;
  RankProcesses ranks(kRanks, [&](int rank, const occlUniqueId&) -> int {
    const std::string pair = std::to_string(rank / 2);
    if (rank >= 2 && !shared.Await("gone " + std::to_string(rank / 2 - 1))) return kFailed;
    if (rank % 2 == 1 && !shared.Await("begun " + pair)) return kFailed;
    Member member(&shared, kRanks, rank);
    if (rank % 2 == 0) shared.Tell("begun " + pair);
    if (rank % 2 == 0 ? !member.Send(rank + 1, rank) : !member.Receive(rank - 1, rank - 1)) {
      return kFailed;
    }
    if (rank < kRanks - 2) Die();
    if (rank == kRanks - 2) return shared.Await("over") ? kFine : kFailed;
    const Exit told = member.NeedsInVain(missed, NameOf(&shared, missed) + kDied);
    shared.Tell("over");
    return told == kTold ? kFine : told;
  });
  TellPids(&shared, ranks, kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.Wait(rank, 90'000), rank < kRanks - 2 ? kKilled : kFine) << rank;
    if (rank % 2 == 1) shared.Tell("gone " + std::to_string(rank / 2));
  }
}

TEST(Late, GenerationAfterGenerationWasKilled) {
  for (int missed = 0; missed < 4; ++missed) KilledPairsMiss(missed);
}

// Who leaves at the very moment at which others come.
TEST(Late, TheFirstLeavesWhileOthersCome) {
  for (int round = 0; round < 30; ++round) {
    SharedStore shared;
    RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
      if (rank != 0 && !shared.Await("0 leaves")) return kFailed;
      Member member(&shared, 3, rank);
      if (!member.ok()) return kFailed;
      if (rank == 0) {
        shared.Tell("0 leaves");
        usleep(static_cast<useconds_t>(round * 100));
        return member.Leave() ? kFine : kFailed;
      }
      const bool good = rank == 1 ? member.Send(2, 5) : member.Receive(1, 5);
      return good && member.Leave() ? kFine : kFailed;
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
    if (testing::Test::HasFailure()) return;
  }
}

// A child that it has forked, and that lives on, has none of the group's sockets.
TEST(Late, AForkedChildOfTheFirstKeepsNobodyWaiting) {
  SharedStore shared;
  RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
    if (rank != 0 && !shared.Await("0 has gone")) return kFailed;
    Member member(&shared, 3, rank);
    if (!member.ok()) return kFailed;
    if (rank == 0) {
      if (fork() == 0) {
        shared.Await("over", 90'000);
        _exit(0);
      }
      return member.Leave() ? kFine : kFailed;
    }
    const bool good = rank == 1 ? member.Send(2, 5) : member.Receive(1, 5);
    return good && member.Leave() ? kFine : kFailed;
  });
  EXPECT_EQ(ranks.Wait(0, 90'000), kFine);
  shared.Tell("0 has gone");
  for (const int rank : {1, 2}) EXPECT_EQ(ranks.Wait(rank, 90'000), kFine) << rank;
  shared.Tell("over");
}

TEST(Late, SilentConnectionsDoNotKeepRanksFromComing) {
  SharedStore shared;
  RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
    if (rank != 0 && !shared.Await(rank == 1 ? "begun" : "crowded")) return kFailed;
    if (rank == 1) {  // not one of them
      const std::vector<int> sockets = ConnectOften(700);
      std::fprintf(stderr, "%zu connections\n", sockets.size());
      shared.Tell("crowded");
      const bool over = shared.Await("over");
      for (const int fd : sockets) close(fd);
      return over && sockets.size() >= 700 ? kFine : kFailed;
    }
    Member member(&shared, 2, rank / 2);
    if (rank == 0) shared.Tell("begun");
    const bool good = rank == 0 ? member.Send(1, 3) : member.Receive(0, 3);
    if (rank == 2) shared.Tell("over");
    return good && member.Destroy() ? kFine : kFailed;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 120'000), kFine) << rank;
}

}  // namespace
}  // namespace occl_conformance
