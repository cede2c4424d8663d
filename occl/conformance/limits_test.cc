// A rank whose process has no descriptors, address space or memory left gets an error that says so,
// and the others are told at once: nobody waits for the deadline, nobody crashes.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

enum Exit { kFine = 0, kUnexpected = 10, kNotTold = 11 };

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
  const rlimit limit = {static_cast<rlim_t>(next + count), static_cast<rlim_t>(next + count)};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
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

// Those whom it can still let in are told; whom it cannot, the deadline tells.
TEST(Limits, NoDescriptorsOnTheLeaderFailInit) {
  if (SanitizerNeedsDescriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
    UseDevice();
    if (rank == 0) LeaveDescriptors(4);  // the store, the listener, two ranks: none for the rest
    return ExpectNoInit(rank, id, rank == 0 ? "Too many open files" : "", 5'000);
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 50'000), kFine);
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
    if (rank == 1) {
      long long pages = 0;
      FILE* const statm = std::fopen("/proc/self/statm", "r");
      EXPECT_EQ(std::fscanf(statm, "%lld", &pages), 1);
      std::fclose(statm);
      const auto used = static_cast<rlim_t>(pages) * 4096 + 600'000;
      const rlimit limit = {used, used};
      EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    return ExpectNoInit(rank, id, "");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.Wait(rank, 50'000), kFine);
}

}  // namespace
}  // namespace occl_conformance
