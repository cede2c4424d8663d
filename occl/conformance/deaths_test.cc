// Ranks as processes that are killed or stopped at bad moments: the others hear of it.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>

#include "gtest/gtest.h"
#include "occl/conformance/rank_programs.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

int ExpectFailure(int rank, occlComm_t comm, size_t count, occlResult_t expected,
                  const std::string& part) {
  std::string message;
  const occlResult_t result = ReduceUntilFailure(comm, count, &message);
  if (result != expected || message.find(part) == std::string::npos) {
    std::fprintf(stderr, "rank %d: result %d, message %s\n", rank, result, message.c_str());
    return result != expected ? kWrongResult : kWrongMessage;
  }
  occlCommDestroy(comm);
  return kFine;
}

class Deaths : public testing::TestWithParam<size_t> {};

TEST_P(Deaths, KilledRankIsNamedByAllOthers) {
  for (int delay_ms : {0, 20, 50}) {
    RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) {
      occlComm_t comm = nullptr;
      if (const int failed = Join(rank, 3, id, 60'000, &comm)) return failed;
      return ExpectFailure(rank, comm, GetParam(), occlRemoteError, "rank 1 (pid ");
    });
    usleep(500'000 + delay_ms * 1000);
    const int64_t killed_ms = NowMs();
    ranks.Kill(1, SIGKILL);
    EXPECT_EQ(ranks.Wait(0), kFine);
    EXPECT_EQ(ranks.Wait(2), kFine);
    std::fprintf(stderr, "survivors ended %lld ms after the kill\n",
                 static_cast<long long>(NowMs() - killed_ms));
    EXPECT_EQ(ranks.Wait(1), -1);
  }
}

TEST_P(Deaths, StoppedRankRunsIntoTheDeadline) {
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) {
    occlComm_t comm = nullptr;
    if (const int failed = Join(rank, 3, id, 700, &comm)) return failed;
    return ExpectFailure(rank, comm, GetParam(), occlTimeout, "rank(s) 2 (pid ");
  });
  usleep(500'000);
  ranks.Kill(2, SIGSTOP);
  EXPECT_EQ(ranks.Wait(0), kFine);
  EXPECT_EQ(ranks.Wait(1), kFine);
  // The one that was stopped finds the communicator failed when it goes on.
  ranks.Kill(2, SIGCONT);
  EXPECT_EQ(ranks.Wait(2), kFine);
}

INSTANTIATE_TEST_SUITE_P(Counts, Deaths, testing::Values(2, 1000, 1'000'000));

TEST(Deaths, WithinInitFailsTheOthers) {
  RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) {
    if (rank == 2) {
      sleep(1000);  // never joins
    }
    occlConfig_t config = OCCL_CONFIG_INITIALIZER;
    config.initTimeout_ms = 60'000;
    occlComm_t comm = nullptr;
    const occlResult_t result = occlCommInitRank(&comm, 3, id, rank, &config);
    return result == occlRemoteError ? kFine : kWrongResult;
  });
  usleep(500'000);
  ranks.Kill(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), kFine);
}

TEST(Deaths, ADeadReceiverFailsTheSender) {
  RankProcesses ranks(2, [&](int rank, const occlUniqueId& id) -> int {
    occlComm_t comm = nullptr;
    if (const int failed = Join(rank, 2, id, 60'000, &comm)) return failed;
    if (rank == 1) sleep(1000);
    DeviceBuffer buffer(4000);
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    if (occlSend(buffer.device(), 1000, occlInt32, 1, 0, comm, nullptr, &options) != occlSuccess) {
      return kSetupFailed;
    }
    return occlRequestWait(request, 60'000) == occlRemoteError ? kFine : kWrongResult;
  });
  usleep(500'000);
  ranks.Kill(1, SIGKILL);
  EXPECT_EQ(ranks.Wait(0), kFine);
}

// The last rank of two, in all the ways in which ranks come together.
class DeathsWithoutPid : public testing::TestWithParam<bool> {
 protected:
  void Run(const std::function<int(const std::function<int()>&)>& as_rank_1,
           const std::function<void()>& end_of_rank_1, const std::string& message) {
    SharedStore shared;
    const auto body = [&](int rank, const occlUniqueId& id) {
      const occlStore_t store = shared.AsStore();
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.initTimeout_ms = 60'000;
      config.timeout_ms = 60'000;
      config.early = 1;
      occlComm_t comm = nullptr;
      const occlResult_t joined = GetParam()
                                      ? occlCommInitRankStore(&comm, 2, rank, &store, &config)
                                      : occlCommInitRank(&comm, 2, id, rank, &config);
      if (joined != occlSuccess) {
        std::fprintf(stderr, "rank %d: init: %s\n", rank, occlGetLastError(nullptr));
        return int{kSetupFailed};
      }
      if (rank == 0) return ExpectFailure(0, comm, 1000, occlRemoteError, message);
      DeviceBuffer buffer(4000);
      std::memset(buffer.host(), 0, 4000);
      for (int i = 0; i < 10; ++i) {
        if (occlAllReduce(buffer.device(), buffer.device(), 1000, occlFloat32, occlSum, comm,
                          nullptr, nullptr) != occlSuccess ||
            orStreamSynchronizeTimeout(nullptr, 60'000) != orSuccess) {
          return int{kWrongResult};
        }
      }
      end_of_rank_1();
      return int{kSetupFailed};
    };
    RankProcesses ranks(2, [&](int rank, const occlUniqueId& id) {
      return rank == 0 ? body(0, id) : as_rank_1([&] { return body(1, id); });
    });
    EXPECT_EQ(ranks.Wait(0), kFine);
  }
};

bool MayMakePidNamespaces() {
  const pid_t pid = fork();
  if (pid == 0) _exit(unshare(CLONE_NEWPID) == 0 ? 0 : 1);
  int status = 0;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

TEST_P(DeathsWithoutPid, OfAProgramThatAnotherReplaces) {
  Run([](const auto& body) { return body(); }, [] { execl("/bin/sleep", "sleep", "100", nullptr); },
      "has died: its process runs another program now");
}

// Where its number is 1, as in a container, whatever the others have under that number.
TEST_P(DeathsWithoutPid, OfAProcessInAnotherPidNamespace) {
  if (!MayMakePidNamespaces()) GTEST_SKIP() << "no privilege to make a pid namespace";
  Run(
      [](const auto& body) {
        if (unshare(CLONE_NEWPID) != 0) return int{kSetupFailed};
        const pid_t pid = fork();
        if (pid == 0) {
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          _exit(body());
        }
        waitpid(pid, nullptr, 0);
        sleep(1000);  // its parent tells nothing
        return int{kSetupFailed};
      },
      [] {
        usleep(100'000);
        _exit(1);
      },
      "rank 1 (pid 1) has died");
}

INSTANTIATE_TEST_SUITE_P(WithStore, DeathsWithoutPid, testing::Bool());

std::set<std::string> TemporaryFiles() {
  std::set<std::string> names;
  for (const auto& folder :
       {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
      names.insert(entry.path());
    }
  }
  return names;
}

TEST(Deaths, OfAllInACollectiveLeaveNoFile) {
  const std::set<std::string> before = TemporaryFiles();
  int reduced[2];
  ASSERT_EQ(pipe(reduced), 0);
  {
    RankProcesses ranks(3, [&](int rank, const occlUniqueId& id) -> int {
      occlComm_t comm = nullptr;
      if (const int failed = Join(rank, 3, id, 60'000, &comm)) return failed;
      DeviceBuffer buffer(4'000'000);
      while (occlAllReduce(buffer.device(), buffer.device(), 1'000'000, occlFloat32, occlSum, comm,
                           nullptr, nullptr) == occlSuccess &&
             orStreamSynchronizeTimeout(nullptr, 60'000) == orSuccess) {
        if (write(reduced[1], "x", 1) != 1) return kWrongResult;
      }
      return kWrongResult;
    });
    close(reduced[1]);
    // Each has gone through some; the end of the file would be the end of all ranks.
    for (int i = 0; i < 30; ++i) {
      char byte;
      ASSERT_EQ(read(reduced[0], &byte, 1), 1);
    }
    for (int r = 0; r < 3; ++r) ranks.Kill(r, SIGKILL);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.Wait(r), -1);
  }
  close(reduced[0]);
  EXPECT_EQ(TemporaryFiles(), before);
}

TEST(Deaths, OneThatHasDoneItsPartHarmsNobody) {
  RankProcesses ranks(2, [&](int rank, const occlUniqueId& id) -> int {
    occlComm_t comm = nullptr;
    if (const int failed = Join(rank, 2, id, 60'000, &comm)) return failed;
    DeviceBuffer buffer(400);
    for (int i = 0; i < 100; ++i) buffer.as<int32_t>()[i] = i + rank;
    if (rank == 1) usleep(300'000);
    if (occlAllReduce(buffer.device(), buffer.device(), 100, occlInt32, occlSum, comm, nullptr,
                      nullptr) != occlSuccess ||
        orStreamSynchronize(nullptr) != orSuccess) {
      return kWrongResult;
    }
    for (int i = 0; i < 100; ++i) {
      if (buffer.as<int32_t>()[i] != 2 * i + 1) return kWrongResult;
    }
    return kFine;  // without a destroy
  });
  EXPECT_EQ(ranks.Wait(0), kFine);
  EXPECT_EQ(ranks.Wait(1), kFine);
}

}  // namespace
}  // namespace occl_conformance
