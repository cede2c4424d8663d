// Messages between processes of one host.
#include "occl/bootstrap/local_socket.h"

#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace occl {
namespace {

// The kernel may tell a receiver of the end that looks for a message while one comes and the sender
// goes.
TEST(LocalSocket, TheLastMessageOfASenderThatGoesArrives) {
  constexpr int kRounds = 60'000;
  std::atomic<int> posted{-1};
  int other = -1;
  std::thread sender([&] {
    for (int round = 0; round < kRounds; ++round) {
      while (posted.load(std::memory_order_acquire) < round) {
      }
      const UniqueFd socket(other);
      EXPECT_TRUE(SendMessage(socket, &round, sizeof(round), {}, Deadline::After(10'000)).ok());
    }
  });
  int lost = 0;
  for (int round = 0; round < kRounds; ++round) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd socket(ends[0]);
    other = ends[1];
    posted.store(round, std::memory_order_release);
    int got = -1;
    const Status received =
        ReceiveMessage(socket, &got, sizeof(got), nullptr, Deadline::After(10'000));
    lost += !received.ok() || got != round;
  }
  sender.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace occl
