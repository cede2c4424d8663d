#include "openreg/runtime/promises.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"
#include "openreg/runtime/config.h"
#include "openreg/runtime/memory_budget.h"

namespace openreg {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

// Another process, which has reserved memory and touches as much of it as it is told.
class Neighbour {
 public:
  Neighbour() {
    if (pipe(orders_) != 0 || pipe(answers_) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) Run();
    close(orders_[0]);
    close(answers_[1]);
  }
  ~Neighbour() {
    End();
    close(orders_[1]);
    close(answers_[0]);
  }
  void Reserve(int megabytes) { Tell('r', megabytes); }
  void Touch(int megabytes) { Tell('t', megabytes); }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int pid() const { return pid_; }

 private:
  struct Order {
    char what;
    int megabytes;
  };
  void Tell(char what, int megabytes) {
    const Order order = {what, megabytes};
    ASSERT_EQ(write(orders_[1], &order, sizeof(order)), ssize_t{sizeof(order)});
    pollfd answer = {answers_[0], POLLIN, 0};
    ASSERT_EQ(poll(&answer, 1, 20'000), 1);
    char done;
    ASSERT_EQ(read(answers_[0], &done, 1), 1);
  }
  [[noreturn]] void Run() {
    Promises promises;
    const int arena = memfd_create("openreg-3", MFD_CLOEXEC);
    Order order;
    while (read(orders_[0], &order, sizeof(order)) == ssize_t{sizeof(order)}) {
      const off_t bytes = off_t{order.megabytes} << 20;
      if (order.what == 'r') promises.Show(static_cast<uint64_t>(bytes));
      if (order.what == 't' && fallocate(arena, 0, 0, bytes) != 0) _exit(1);
      if (write(answers_[1], "", 1) != 1) _exit(1);
    }
    _exit(0);
  }

  int orders_[2], answers_[2];
  pid_t pid_;
};

uint64_t Found(const Promises& own, int pid) {
  uint64_t bytes = 0;
  for (const Promise& promise : own.OfOthers()) {
    if (promise.pid == pid) bytes += promise.bytes;
  }
  return bytes;
}

TEST(Promises, ShowWhatAnotherProcessHasNotTouchedYet) {
  Neighbour neighbour;
  Promises own;
  own.Show(5 * kMegabyte);
  EXPECT_EQ(Found(own, neighbour.pid()), 0u);
  neighbour.Reserve(100);
  EXPECT_EQ(Found(own, neighbour.pid()), 100 * kMegabyte);
  neighbour.Touch(3);
  EXPECT_EQ(Found(own, neighbour.pid()), 97 * kMegabyte);
  neighbour.Reserve(2);  // it has given some back, and touched more than is left
  EXPECT_EQ(Found(own, neighbour.pid()), 0u);
  neighbour.Reserve(40);
  EXPECT_EQ(Found(own, neighbour.pid()), 37 * kMegabyte);
  const int pid = neighbour.pid();
  neighbour.End();
  EXPECT_EQ(Found(own, pid), 0u);
}

TEST(Promises, AChildOfThisProcessShowsNothingOfIt) {
  Promises own;
  own.Show(7 * kMegabyte);
  Neighbour neighbour;  // it has the descriptor too
  EXPECT_EQ(Found(own, neighbour.pid()), 0u);
  EXPECT_EQ(Found(own, getpid()), 0u);
}

TEST(SystemAvailableBytes, IsLessWhatIsPromised) {
  EXPECT_EQ(SystemAvailableBytes({{getpid(), UINT64_MAX}, {1, UINT64_MAX}}), 0u);
  const uint64_t all = SystemAvailableBytes();
  // Other processes come and go meanwhile: half of it is more than they make of a difference.
  EXPECT_LT(SystemAvailableBytes({{getpid(), all - all / 8}}), all / 2);
}

TEST(MemoryBudget, GivesBackWhileAnotherThreadAsksTheSystemAgain) {
  constexpr uint64_t kBytes = kMegabyte;
  Neighbour neighbour;  // because of which the system has too little
  neighbour.Reserve(static_cast<int>(SystemMemoryBytes() / kMegabyte) + 1);
  MemoryBudget budget(UINT64_MAX);
  std::atomic<bool> over{false};
  std::atomic<int> attempts{0}, most{0};
  std::thread gives_back([&] {
    while (!over.load()) {
      const int attempt = attempts.load();
      const auto asks = [&] { return attempts.load() == attempt && budget.used() >= kBytes; };
      if (!asks()) continue;
      usleep(5'000);  // it has the lock, or has let it go
      int given_back = 0;
      while (asks()) {
        budget.Release(0);
        given_back += asks() ? 1 : 0;
      }
      most.store(std::max(most.load(), given_back));
    }
  });
  while (most.load() < 100 && attempts.load() < 20) {
    EXPECT_FALSE(budget.Reserve(kBytes));
    attempts.fetch_add(1);
  }
  over.store(true);
  gives_back.join();
  EXPECT_GE(most.load(), 100);
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace openreg
