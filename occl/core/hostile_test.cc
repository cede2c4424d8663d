// A hostile or confused process of the same user: random bytes in the control segment, strangers at
// the bootstrap's sockets. Errors are fine, and deadlines; crashes and hangs are not.
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/bootstrap/messages.h"
#include "occl/conformance/ranks.h"
#include "occl/transport/control_layout.h"

namespace occl {
namespace {

using occl_conformance::DeviceBuffer;
using occl_conformance::NowMs;
using occl_conformance::Rank;
using occl_conformance::RankOptions;
using occl_conformance::RunThreads;

struct Mapping {
  unsigned char* begin = nullptr;
  size_t size = 0;
};

// The newest mapping of a control segment in this process.
Mapping FindSegment() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  Mapping found;
  while (std::getline(maps, line)) {
    if (line.find("memfd:occl-control") == std::string::npos) continue;
    size_t begin = 0, end = 0;
    std::sscanf(line.c_str(), "%zx-%zx", &begin, &end);
    found = {reinterpret_cast<unsigned char*>(begin), end - begin};
  }
  return found;
}

// Through the kernel, as seen from a process that is not this one: ThreadSanitizer rightly calls it
// a race where this process itself writes beside its communicators.
void WriteAsAnotherProcess(unsigned char* to, uint64_t value) {
  const iovec local = {&value, sizeof value};
  const iovec remote = {to, sizeof value};
  ASSERT_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), ssize_t{sizeof value});
}

// One operation after the other until the communicator fails or the time is over.
void RunUntilFailure(const Rank& rank, int64_t end_ms) {
  constexpr size_t kCount = 30'000;
  DeviceBuffer a(kCount * 4), b(kCount * 4);
  std::vector<size_t> counts(rank.nranks, 100);
  std::vector<const void*> sends(rank.nranks, a.device());
  std::vector<void*> recvs;
  for (int r = 0; r < rank.nranks; ++r) recvs.push_back(b.device_bytes() + 400 * r);
  for (int i = 0; NowMs() < end_ms; ++i) {
    const size_t count = i % 3 == 0 ? 4 : i % 3 == 1 ? 1000 : kCount;
    occlResult_t result = occlSuccess;
    switch (i % 4) {
      case 0:
        result = occlAllReduce(a.device(), b.device(), count, occlInt32, occlSum, rank.comm,
                               rank.stream, nullptr);
        break;
      case 1:
        result = occlAllGather(a.device(), b.device(), count / rank.nranks, occlInt32, rank.comm,
                               rank.stream, nullptr);
        break;
      case 2:
        result = occlAllToAllv(sends.data(), counts.data(), recvs.data(), counts.data(), occlInt32,
                               rank.comm, rank.stream, nullptr);
        break;
      default:
        EXPECT_EQ(occlGroupStart(), occlSuccess);
        static_cast<void>(occlSend(a.device(), count, occlInt32, (rank.rank + 1) % rank.nranks, 0,
                                   rank.comm, rank.stream, nullptr));
        static_cast<void>(occlRecv(b.device(), count, occlInt32, OCCL_ANY_SOURCE, 0, rank.comm,
                                   rank.stream, nullptr));
        result = occlGroupEnd();
    }
    if (result != occlSuccess) return;
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
  }
}

// Fit to be shown by whoever shows errors.
void ExpectText(const char* text) { EXPECT_EQ(PrintableText(text, std::strlen(text)), text); }

TEST(Hostile, RandomBytesInTheControlSegmentDoNotCrash) {
  const unsigned first_seed = std::random_device{}();
  for (unsigned seed = first_seed; seed < first_seed + 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::atomic<int> running{3};
    RankOptions options;
    options.timeout_ms = 200;
    RunThreads(
        3,
        [&](const Rank& rank) {
          if (rank.rank == 0) {
            std::thread([&, mapping = FindSegment()] {
              std::mt19937_64 random(seed);
              ASSERT_NE(mapping.begin, nullptr);
              const size_t reach = seed % 2 == 0 ? 150'000 : mapping.size / 4;
              while (running.load() > 1) {
                const size_t offset = random() % (reach / 8) * 8;
                const uint64_t value = random() % 3 == 0 ? random() : random() % 8;
                WriteAsAnotherProcess(mapping.begin + offset, value);
                if (random() % 64 == 0) std::this_thread::yield();
              }
            }).join();
          } else {
            RunUntilFailure(rank, NowMs() + 400);
            std::vector<occlOpRecord_t> records(64);
            for (int r = 0; r < rank.nranks; ++r) {
              size_t n = records.size();
              EXPECT_EQ(occlCommGetHistory(rank.comm, r, records.data(), &n), occlSuccess);
              for (size_t i = 0; i < n; ++i) ExpectText(records[i].operation);
            }
            ExpectText(occlGetLastError(rank.comm));
            running.fetch_sub(1);
          }
        },
        options);
  }
}

// What a rank says about where it waits is shown by its peers.
TEST(Hostile, WhatARankSaysOfItsWaitsIsTextWhenItIsShown) {
  for (const uint64_t junk :
       {uint64_t{0x1b5b'3331'6d07'0a0d}, ~uint64_t{0}, uint64_t{0x4141'4141'4141'4141}}) {
    std::atomic<bool> over{false};
    RankOptions options;
    options.timeout_ms = 1'000;
    RunThreads(
        2,
        [&](const Rank& rank) {
          const Mapping mapping = FindSegment();
          DeviceBuffer buffer(4);
          if (rank.rank == 1) {
            const size_t waits =
                sizeof(SegmentHeader) + sizeof(RankBlock) + offsetof(RankBlock, waits);
            while (!over.load()) {
              for (size_t at = 0; at < sizeof(RankBlock::waits); at += sizeof(uint64_t)) {
                const bool version = at % sizeof(WaitPlace) == offsetof(WaitPlace, version);
                WriteAsAnotherProcess(mapping.begin + waits + at, version ? 2 : junk);
              }
              std::this_thread::yield();
            }
            return;
          }
          occlRequest_t request = nullptr;
          occlCallOptions_t call = OCCL_CALL_OPTIONS_INITIALIZER;
          call.request = &request;
          ASSERT_EQ(occlAllReduce(buffer.device(), buffer.device(), 1, occlInt32, occlSum,
                                  rank.comm, rank.stream, &call),
                    occlSuccess);
          EXPECT_EQ(occlRequestWait(request, 30'000), occlTimeout);
          occlResult_t result = occlSuccess;
          const char* message = "";
          ASSERT_EQ(occlRequestGetResult(request, &result, &message), occlSuccess);
          EXPECT_NE(std::string(message).find("it waits in "), std::string::npos) << message;
          ExpectText(message);
          ASSERT_EQ(occlRequestFree(request), occlSuccess);
          over.store(true);
        },
        options);
  }
}

// Names of abstract sockets of this library that are bound now.
std::vector<std::string> BoundSockets() {
  std::ifstream table("/proc/net/unix");
  std::string line;
  std::vector<std::string> names;
  while (std::getline(table, line)) {
    const size_t at = line.find("@occl-");
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

TEST(Hostile, StrangersAtTheSocketsDoNotDisturbInit) {
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    std::mt19937 random(7);
    std::vector<int> open;
    while (!stop.load()) {
      for (const std::string& name : BoundSockets()) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        if (connect(fd, reinterpret_cast<sockaddr*>(&address),
                    offsetof(sockaddr_un, sun_path) + 1 + name.size()) == 0) {
          std::vector<unsigned char> bytes(random() % 3000);
          for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
          if (!bytes.empty()) {
            static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
          }
        }
        open.push_back(fd);
        if (open.size() > 20) {
          close(open.front());
          open.erase(open.begin());
        }
      }
      std::this_thread::yield();
    }
    for (int fd : open) close(fd);
  });
  for (int round = 0; round < 20; ++round) {
    RunThreads(3, [](const Rank& rank) {
      ASSERT_EQ(occlBarrier(rank.comm, rank.stream, nullptr), occlSuccess);
      ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    });
  }
  stop.store(true);
  stranger.join();
}

}  // namespace
}  // namespace occl
