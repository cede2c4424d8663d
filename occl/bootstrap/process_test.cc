#include "occl/bootstrap/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace occl {
namespace {

TEST(Process, ItselfHasNotEnded) {
  EXPECT_EQ(OwnProcessId().pid, getpid());
  EXPECT_NE(OwnProcessId().start_ticks, 0u);
  EXPECT_FALSE(HasEnded(OwnProcessId()));
}

TEST(Process, AForkedChildIsAnother) {
  static_cast<void>(OwnProcessId());
  const pid_t child = fork();
  if (child == 0) _exit(OwnProcessId().pid == getpid() && !HasEnded(OwnProcessId()) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Process, HasEndedBeforeItsParentHasWaitedForIt) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessId own = OwnProcessId();
    if (write(told[1], &own, sizeof(own)) != sizeof(own)) _exit(1);
    while (true) pause();
  }
  ProcessId process = {};
  ASSERT_EQ(read(told[0], &process, sizeof(process)), ssize_t{sizeof(process)});
  EXPECT_EQ(process.pid, child);
  EXPECT_FALSE(HasEnded(process));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(HasEnded(process));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(HasEnded(process));
  close(told[0]);
  close(told[1]);
}

TEST(Process, HasEndedWhereItsPidIsAnothers) {
  ProcessId process = OwnProcessId();
  process.start_ticks -= 1;
  EXPECT_TRUE(HasEnded(process));
  process.start_ticks = 0;  // unknown
  EXPECT_FALSE(HasEnded(process));
}

TEST(Process, OfAnotherPidNamespaceNothingIsKnown) {
  ProcessId process = OwnProcessId();
  process.pid_namespace += 1;
  process.start_ticks -= 1;
  EXPECT_FALSE(HasEnded(process));
}

}  // namespace
}  // namespace occl
