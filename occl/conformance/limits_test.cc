// A rank whose process has no descriptors, address space or memory left gets an error that says so,
// and the others are told at once: nobody waits for the deadline, nobody crashes.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

enum Exit { kFine = 0, kUnexpected = 10, kNotTold = 11, kToldAll = 12 };

occlResult_t Join(int rank, int nranks, const occlUniqueId& id, occlComm_t* comm,
                  int64_t init_timeout_ms = 60'000) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.initTimeout_ms = init_timeout_ms;
  config.timeout_ms = 60'000;
  return occlCommInitRank(comm, nranks, id, rank, &config);
}

// Exit code of a rank for which init must fail. `reason`: what the message must hold, "" for any.
int ExpectNoInit(int rank, const occlUniqueId& id, const std::string& reason,
                 int64_t init_timeout_ms = 60'000) {
  const int64_t begin_ms = NowMs();
  occlComm_t comm = nullptr;
  if (Join(rank, 3, id, &comm, init_timeout_ms) == occlSuccess) return kUnexpected;
  const std::string message = occlGetLastError(nullptr);
  std::fprintf(stderr, "rank %d after %lld ms: %s\n", rank,
               static_cast<long long>(NowMs() - begin_ms), message.c_str());
  return message.find(reason) == std::string::npos ? kNotTold : kFine;
}

// UBSan looks at an object's type through a pipe, and calls the type wrong where it gets none.
bool SanitizerNeedsDescriptors() {
  return dlsym(RTLD_DEFAULT, "__ubsan_handle_dynamic_type_cache_miss") != nullptr;
}

// Leaves `count` more descriptors to this process.
void LeaveDescriptors(int count) {
  int next = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) next = fd + 1;
  }
  int filled = -1;  // the gaps below, of what the parent has closed
  do {
    filled = open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (filled >= 0 && filled < next);
  close(filled);
  const rlimit limit = {static_cast<rlim_t>(next + count), static_cast<rlim_t>(next + count)};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// Leaves `size_bytes` of addresses to this process.
void LeaveAddresses(size_t size_bytes) {
  long long pages = 0;
  FILE* const statm = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(statm, "%lld", &pages), 1);
  std::fclose(statm);
  const auto most = static_cast<rlim_t>(pages) * 4096 + size_bytes;
  const rlimit limit = {most, most};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

// Everything that init needs of the runtime is there before the limit falls.
void UseDevice() {
  void* memory = nullptr;
  orIpcDeviceHandle_t handle;
  EXPECT_EQ(orMalloc(&memory, 4096), orSuccess);
  EXPECT_EQ(orIpcGetDeviceHandle(&handle, 0), orSuccess);
}

TEST(Limits, NoDescriptorsOnARank) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  for (int left = 0; left < 8; ++left) {
    RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
      UseDevice();
      if (rank == 1) LeaveDescriptors(left);
      occlComm_t comm = nullptr;
      const occlResult_t result = Join(rank, 3, id, &comm);
      if (result == occlSuccess) return occlCommDestroy(comm) == occlSuccess ? kFine : kUnexpected;
      const std::string message = occlGetLastError(nullptr);
      std::fprintf(stderr, "%d left, rank %d: %s\n", left, rank, message.c_str());
      return message.empty() ? kNotTold : kFine;
    });
    // Whoever cannot even reach the others is missed at the deadline; all else is told at once, and
    // where a device cannot be mapped the ranks do without.
    const int64_t begin_ms = NowMs();
    EXPECT_EQ(ranks.Wait(1, 50'000), kFine);
    if (NowMs() - begin_ms > 40'000) ADD_FAILURE() << "the rank without descriptors waited";
    ranks.Kill(0, SIGKILL);
    ranks.Kill(2, SIGKILL);
  }
}

// All are told, those that it could not let in as well.
TEST(Limits, NoDescriptorsOnTheLeaderFailInit) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  // The store, the listener, pidfds and sockets of up to two ranks: none for the rest.
  for (int left = 2; left < 6; ++left) {
    RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
      UseDevice();
      if (rank == 0) LeaveDescriptors(left);
      return ExpectNoInit(rank, id, "Too many open files", 40'000);
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 60'000), kFine) << left;
  }
}

// How rank 0 comes first to a communicator of three, and what `take`s its descriptors before or
// after that.
int ComeFirst(SharedStore* shared, int rank, const std::function<void(bool joined)>& take) {
  UseDevice();
  if (rank == 0) take(false);
  if (rank != 0 && !shared->Await("rank 0 is there")) return kUnexpected;
  const occlStore_t store = shared->AsStore();
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.initTimeout_ms = 40'000;
  config.name = "test";
  config.early = 1;
  occlComm_t comm = nullptr;
  occlResult_t result = occlCommInitRankStore(&comm, 3, rank, &store, &config);
  if (rank == 0) take(true);
  if (rank == 0) shared->Tell("rank 0 is there");
  if (result == occlSuccess) result = occlCommAwaitRanks(comm, &store, 40'000);
  if (result == occlSuccess) {
    shared->Tell("met " + std::to_string(rank));
    for (int r = 0; r < 3; ++r) {
      if (!shared->Await("met " + std::to_string(r))) return kUnexpected;
    }
    return kFine;
  }
  const std::string message = occlGetLastError(nullptr);
  std::fprintf(stderr, "rank %d: %s\n", rank, message.c_str());
  const bool told = message.find("oo many open files") != std::string::npos;
  const bool names_it = rank == 0 || message.find("rank 0") != std::string::npos;
  return told && names_it ? kToldAll : kNotTold;
}

// Either all can join, or all are told why not, at once.
TEST(Limits, FewDescriptorsOnTheRankThatComesFirst) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  constexpr int kMost = 14;
  std::vector<int> failed;
  for (int left = 0; left <= kMost; ++left) {
    SharedStore shared;
    RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
      return ComeFirst(&shared, rank, [&](bool joined) {
        if (!joined) LeaveDescriptors(left);
      });
    });
    const int first = ranks.Wait(0, 60'000);
    EXPECT_TRUE(first == kFine || first == kToldAll) << left << " left: " << first;
    for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 60'000), first) << left;
    if (first == kToldAll) failed.push_back(left);
  }
  ASSERT_FALSE(failed.empty());
  EXPECT_LT(failed.back(), kMost);
}

// While it waits for the others: not even one that it gives up can be had again.
TEST(Limits, NoDescriptorsOnTheRankThatLetsOthersIn) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  SharedStore shared;
  RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
    return ComeFirst(&shared, rank, [](bool joined) {
      const rlimit none = {3, 3};
      if (joined) setrlimit(RLIMIT_NOFILE, &none);
    });
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 60'000), kToldAll) << rank;
}

// Rank 0 of a communicator of many loses its descriptors before or after it has reached rank 1, and
// then rank 1 dies. No pidfd can be had of who is reached without, and more have been than poll(2)
// takes.
void APeerDiesWhereNoDescriptorIsLeft(bool reached_before) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  constexpr int kRanks = 8;  // two of them come
  SharedStore shared;
  RankProcesses ranks(2, [&](int rank, const occlUniqueId&) -> int {
    UseDevice();
    if (rank == 1 && !shared.Await("rank 0 is there")) return kUnexpected;
    const occlStore_t store = shared.AsStore();
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.timeout_ms = 60'000;
    config.early = 1;
    occlComm_t comm = nullptr;
    if (occlCommInitRankStore(&comm, kRanks, rank, &store, &config) != occlSuccess) {
      return kUnexpected;
    }
    shared.Tell("rank " + std::to_string(rank) + " is there");
    DeviceBuffer data(4);
    orStream_t stream = nullptr;
    if (orStreamCreate(&stream) != orSuccess) return kUnexpected;
    const auto receive = [&] {
      return occlRecv(data.device(), 1, occlInt32, 1, 0, comm, stream, nullptr) == occlSuccess &&
             orStreamSynchronizeTimeout(stream, 60'000) == orSuccess;
    };
    if (rank == 1) {
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && !shared.Await("no descriptor is left")) return kUnexpected;
        if (occlSend(data.device(), 1, occlInt32, 0, 0, comm, stream, nullptr) != occlSuccess ||
            orStreamSynchronizeTimeout(stream, 60'000) != orSuccess) {
          return kUnexpected;
        }
      }
      kill(getpid(), SIGKILL);
    }
    if (!shared.Await("rank 1 is there") || (reached_before && !receive())) return kUnexpected;
    const rlimit none = {3, 3};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return kUnexpected;
    shared.Tell("no descriptor is left");
    if ((!reached_before && !receive()) || !receive()) return kUnexpected;
    static_cast<void>(receive());
    occlResult_t error = occlSuccess;
    if (occlCommGetAsyncError(comm, &error) != occlSuccess || error != occlRemoteError) {
      return kNotTold;
    }
    const std::string message = occlGetLastError(comm);
    std::fprintf(stderr, "%s\n", message.c_str());
    const std::string died = ") has died";
    return message.find("rank 1 (pid ") != std::string::npos && message.ends_with(died) ? kFine
                                                                                        : kNotTold;
  });
  EXPECT_EQ(ranks.Wait(1, 60'000), -1);
  EXPECT_EQ(ranks.Wait(0, 90'000), kFine);
}

TEST(Limits, APeerThatWasReachedWithoutDescriptorsDies) { APeerDiesWhereNoDescriptorIsLeft(false); }
TEST(Limits, APeerThatIsKnownDiesWhereNoDescriptorIsLeft) {
  APeerDiesWhereNoDescriptorIsLeft(true);
}

// Which split it was, and who the ranks of what was to be are.
TEST(Limits, NoDescriptorsOnARankOfASplit) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
    occlComm_t comm = nullptr, split = nullptr;
    if (Join(rank, 3, id, &comm) != occlSuccess) return kUnexpected;
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.initTimeout_ms = 30'000;
    if (occlCommSplit(comm, 0, -rank, &split, &config) != occlSuccess) return kUnexpected;
    if (occlCommDestroy(split) != occlSuccess) return kUnexpected;
    if (rank == 1) LeaveDescriptors(0);
    if (occlCommSplit(comm, 0, -rank, &split, &config) == occlSuccess) return kUnexpected;
    const std::string message = occlGetLastError(nullptr);
    std::fprintf(stderr, "rank %d: %s\n", rank, message.c_str());
    for (const char* told : {"split #2 of communicator", "0 (rank 2 (pid ", "1 (rank 1 (pid "}) {
      if (message.find(told) == std::string::npos) return kNotTold;
    }
    return kFine;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 50'000), kFine);
}

// A rank that can reach the others, but not map what they share: all are told its reason.
TEST(Limits, NoAddressSpaceOnARankIsToldToAll) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs terabytes of addresses";
#endif
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
    UseDevice();
    if (rank == 1) LeaveAddresses(600'000);
    return ExpectNoInit(rank, id, "");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 50'000), kFine);
}

// Ranks that it cannot let in are told so.
TEST(Limits, NoDescriptorsWhereAUniqueIdIsServed) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  for (const bool one_has_come : {false, true}) {
    SharedStore shared;
    RankProcesses ranks(3, [&](int rank, const occlUniqueId&) -> int {
      const occlStore_t store = shared.AsStore();
      occlUniqueId id = {};
      size_t size = 0;
      if (rank == 2) {  // none of them
        if (occlGetUniqueId(&id) != occlSuccess) return kUnexpected;
        LeaveDescriptors(one_has_come ? 1 : 0);
        store.set(store.context, "id", &id, sizeof(id));
        return shared.Await("told 0") && shared.Await("told 1") ? kFine : kUnexpected;
      }
      UseDevice();
      store.get(store.context, "id", &id, sizeof(id), &size, 60'000);
      occlComm_t comm = nullptr;
      if (Join(rank, 2, id, &comm, 40'000) == occlSuccess) return kUnexpected;
      const std::string message = occlGetLastError(nullptr);
      std::fprintf(stderr, "rank %d: %s\n", rank, message.c_str());
      shared.Tell("told " + std::to_string(rank));
      return message.find("that serves the unique id") != std::string::npos &&
                     message.find("oo many open files") != std::string::npos
                 ? kFine
                 : kNotTold;
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 60'000), kFine) << rank;
  }
}

// The caller goes on.
TEST(Limits, NoThreadToServeAUniqueId) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs terabytes of addresses";
#endif
  RankProcesses ranks(1, [&](int, const occlUniqueId&) -> int {
    pthread_attr_t attributes;  // a stack of 64 MiB, so that none is left from another thread
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, 64 << 20) != 0 ||
        pthread_setattr_default_np(&attributes) != 0) {
      return kUnexpected;
    }
    LeaveAddresses(16 << 20);
    occlUniqueId id;
    if (occlGetUniqueId(&id) != occlSystemError) return kUnexpected;
    const std::string message = occlGetLastError(nullptr);
    std::fprintf(stderr, "%s\n", message.c_str());
    return message.find("the thread that serves the unique id") == std::string::npos ? kNotTold
                                                                                     : kFine;
  });
  EXPECT_EQ(ranks.Wait(0, 50'000), kFine);
}

}  // namespace
}  // namespace occl_conformance
