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
    return occlCommLeaveInit(nranks_, rank_, &store_, &config) == occlSuccess && Destroy();
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

// Connects, without a word, to all that listen for ranks in this network namespace.
std::vector<int> ConnectOften(int times) {
  rlimit limit = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> sockets;
  std::ifstream table("/proc/net/unix");
  std::string line;
  while (std::getline(table, line)) {
    const size_t at = line.find("@occl-");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 1);
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
