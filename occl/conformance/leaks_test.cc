// Nothing is left: no file, segment, socket, process, thread, descriptor or mapping, after rounds
// of init, collectives, a failure and destroy, one after the other in one process.
//
// LEAK_ROUNDS says how many; `tools/bazel test //occl/conformance:leaks_long_test` does 1,000.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

int Rounds() {
  const char* text = std::getenv("LEAK_ROUNDS");
  return text == nullptr ? 42 : std::atoi(text);
}

std::vector<std::string> Entries(const char* folder) {
  std::vector<std::string> names;
  DIR* const open_folder = opendir(folder);
  if (open_folder == nullptr) return names;
  while (const dirent* entry = readdir(open_folder)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(open_folder);
  return names;
}

size_t LinesWith(const char* file, const std::string& part) {
  std::ifstream lines(file);
  std::string line;
  size_t count = 0;
  while (std::getline(lines, line)) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

// What this process has, and what is visible of its children's remains. A test has a network and a
// /dev/shm of its own, so every entry there is the test's.
struct Holdings {
  size_t descriptors, threads, mappings, sockets, shared_files;

  static Holdings Now() {
    return {Entries("/proc/self/fd").size(), Entries("/proc/self/task").size(),
            LinesWith("/proc/self/maps", "memfd:"), LinesWith("/proc/net/unix", "@"),
            Entries("/dev/shm").size()};
  }
  std::string Text() const {
    return std::to_string(descriptors) + " descriptors, " + std::to_string(threads) + " threads, " +
           std::to_string(mappings) + " mappings of shared memory, " + std::to_string(sockets) +
           " sockets, " + std::to_string(shared_files) + " files in /dev/shm";
  }
  bool NoMoreThan(const Holdings& other) const {
    return descriptors <= other.descriptors && threads <= other.threads &&
           mappings <= other.mappings && sockets <= other.sockets &&
           shared_files <= other.shared_files;
  }
};

// A thread that was joined, or has said that it ends, is in /proc for a moment still.
void ExpectNoMoreThan(const Holdings& before) {
  const int64_t end_ms = NowMs() + 20'000;
  Holdings now = Holdings::Now();
  while (!now.NoMoreThan(before) && NowMs() < end_ms) {
    usleep(5'000);
    now = Holdings::Now();
  }
  EXPECT_TRUE(now.NoMoreThan(before)) << "before: " << before.Text() << "\nnow: " << now.Text();
}

occlResult_t ReduceAndWait(const Rank& rank, size_t count, const DeviceBuffer& buffer) {
  occlRequest_t request = nullptr;
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  options.request = &request;
  occlResult_t result = occlAllReduce(buffer.device(), buffer.device(), count, occlFloat32, occlSum,
                                      rank.comm, rank.stream, &options);
  if (result != occlSuccess) return result;
  result = occlRequestWait(request, 60'000);
  occlRequestFree(request);
  return result;
}

constexpr int kEndings = 6;

// Until all ranks are here: one may not fail the communicator while others are still in a good
// operation.
void AwaitAll(std::atomic<int>* here, int nranks) {
  here->fetch_add(1);
  const int64_t end_ms = NowMs() + 30'000;
  while (here->load() < nranks && NowMs() < end_ms) std::this_thread::yield();
}

// A communicator that ends in one of several ways.
void EndSomehow(int ending, const Rank& rank, std::atomic<int>* here) {
  constexpr size_t kMost = 200'000;
  DeviceBuffer buffer(kMost * 4);
  for (size_t count : {size_t{3}, kMost}) {
    EXPECT_EQ(ReduceAndWait(rank, count, buffer), occlSuccess);
  }
  AwaitAll(here, rank.nranks);
  occlResult_t expected = occlSuccess;
  occlResult_t result = occlSuccess;
  switch (ending) {
    case 0:  // in order
      break;
    case 1:
      expected = occlAborted;
      if (rank.rank == 1) occlCommAbort(rank.comm, "test");
      result = ReduceAndWait(rank, kMost, buffer);
      break;
    case 2:
      expected = occlMismatch;
      result = ReduceAndWait(rank, rank.rank == 0 ? kMost : 5, buffer);
      break;
    case 3:
      if (rank.rank == 0) return;  // destroys while the others wait
      expected = occlRemoteError;
      result = ReduceAndWait(rank, kMost, buffer);
      break;
    case 4: {
      occlComm_t half = nullptr;
      ASSERT_EQ(occlCommSplit(rank.comm, rank.rank % 2, 0, &half, nullptr), occlSuccess);
      ASSERT_EQ(occlCommDestroy(half), occlSuccess);
      break;
    }
    default:  // destroyed with a receive that is never answered
      result = occlRecv(buffer.device(), 1, occlInt32, (rank.rank + 1) % rank.nranks, 7, rank.comm,
                        rank.stream, nullptr);
      if (result == occlRemoteError) return;  // another one was quicker
  }
  EXPECT_EQ(result, expected);
}

void OneRound(int round) {
  std::atomic<int> here{0};
  RunThreads(3, [&](const Rank& rank) { EndSomehow(round % kEndings, rank, &here); });
  if (round % kEndings != 0) return;
  // An init that fails.
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.initTimeout_ms = 10;
  occlComm_t comm = nullptr;
  EXPECT_EQ(occlCommInitRankStore(&comm, 2, 0, &store, &config), occlTimeout);
}

// Ranks that are killed at some moment between the first call and the last: their parent, who has
// not used the device yet (so this test comes first), finds nothing of them.
TEST(Leaks, NothingIsLeftOfKilledRanks) {
  std::thread([] {}).join();  // with the first thread ThreadSanitizer starts one that stays
  const Holdings before = Holdings::Now();
  const int rounds = Rounds() / 3;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) {
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.initTimeout_ms = 3'000;  // of a rank that dies before it says anything nobody knows
      config.timeout_ms = 60'000;
      occlComm_t comm = nullptr;
      if (occlCommInitRank(&comm, 3, id, rank, &config) != occlSuccess) return 2;
      DeviceBuffer buffer(400'000);
      occlResult_t result = occlSuccess;
      while (result == occlSuccess) {
        result = ReduceAndWait({rank, 3, comm, nullptr}, 100'000, buffer);
      }
      return result == occlRemoteError ? 0 : 1;
    });
    usleep(static_cast<useconds_t>(round * 7919 % 60'000));
    const int victim = round % 3;
    ranks.Kill(victim, SIGKILL);
    for (int r = 0; r < 3; ++r) {
      const int code = ranks.Wait(r);
      if (r == victim) {
        EXPECT_EQ(code, -1);
      } else {
        // 2: it died before init was complete.
        EXPECT_TRUE(code == 0 || code == 2) << "rank " << r << " ended with " << code;
      }
    }
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  }
  ExpectNoMoreThan(before);
}

TEST(Leaks, NothingIsLeftInTheProcess) {
  for (int round = 0; round < 2 * kEndings; ++round) OneRound(round);
  const Holdings before = Holdings::Now();
  const int rounds = Rounds();
  for (int round = 0; round < rounds && !HasFailure(); ++round) OneRound(round);
  ExpectNoMoreThan(before);
  std::fprintf(stderr, "%d rounds, then: %s\n", rounds, Holdings::Now().Text().c_str());
}

}  // namespace
}  // namespace occl_conformance
