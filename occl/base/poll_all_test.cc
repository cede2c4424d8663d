#include "occl/base/poll_all.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace occl {
namespace {

constexpr int kPipes = 6;

// In a process of its own, whose limit falls to fewer descriptors than are polled.
int FindsTheOneThatIsReadable() {
  std::vector<pollfd> polls;
  int last[2] = {-1, -1};
  for (int i = 0; i < kPipes; ++i) {
    if (pipe(last) != 0) return 1;
    polls.push_back({last[0], POLLIN, 0});
  }
  polls.push_back({-1, POLLIN, 0});
  const rlimit few = {3, 3};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
  if (PollAll(&polls, 20) != 0) return 3;  // the time is over
  if (write(last[1], "x", 1) != 1) return 4;
  if (PollAll(&polls, 10'000) != 1) return 5;
  for (int i = 0; i < kPipes + 1; ++i) {
    if ((polls[i].revents == POLLIN) != (i == kPipes - 1)) return 6;
  }
  return 0;
}

TEST(PollAll, FindsWhatIsReadableWhereTheLimitHasFallen) {
  const pid_t child = fork();
  if (child == 0) _exit(FindsTheOneThatIsReadable());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace occl
