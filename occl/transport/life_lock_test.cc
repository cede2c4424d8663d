#include "occl/transport/life_lock.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "gtest/gtest.h"
#include "occl/transport/control_segment.h"

namespace occl {
namespace {

constexpr int kRanks = 3;
constexpr int kDeadline_ms = 60'000;

class LifeLocks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ControlSegment::Create(kRanks, &file_).ok());
    ASSERT_TRUE(LifeLock::Take(file_, 0, &own_).ok());
    ASSERT_EQ(pipe(told_), 0);
    ASSERT_EQ(pipe(may_go_on_), 0);
  }
  void TearDown() override {
    for (const int fd : {told_[0], told_[1], may_go_on_[0], may_go_on_[1]}) close(fd);
  }

  // In a child: says a letter, and waits for the parent's answer.
  void Tell(char letter) {
    char answer;
    alarm(kDeadline_ms / 1000);
    if (write(told_[1], &letter, 1) != 1 || read(may_go_on_[0], &answer, 1) != 1) _exit(1);
  }
  // In the parent.
  char Hear() {
    char letter = 0;
    pollfd there = {told_[0], POLLIN, 0};
    EXPECT_EQ(poll(&there, 1, kDeadline_ms), 1);
    if (there.revents != 0) {
      EXPECT_EQ(read(told_[0], &letter, 1), 1);
    }
    return letter;
  }
  void Answer() { EXPECT_EQ(write(may_go_on_[1], "x", 1), 1); }
  static void ExpectExit(pid_t pid) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

  UniqueFd file_;
  std::unique_ptr<LifeLock> own_;
  int told_[2], may_go_on_[2];
};

TEST_F(LifeLocks, AreHeldUntilTheyAreLetGo) {
  std::unique_ptr<LifeLock> other;
  EXPECT_FALSE(own_->IsHeld(1));
  ASSERT_TRUE(LifeLock::Take(file_, 1, &other).ok());
  EXPECT_TRUE(own_->IsHeld(0));
  EXPECT_TRUE(own_->IsHeld(1));
  EXPECT_FALSE(own_->IsHeld(2));
  EXPECT_TRUE(other->IsHeld(0));
  other.reset();
  EXPECT_FALSE(own_->IsHeld(1));
}

TEST_F(LifeLocks, APlaceIsTakenOnce) {
  std::unique_ptr<LifeLock> second;
  const Status refused = LifeLock::Take(file_, 0, &second);
  EXPECT_EQ(refused.code(), occlMismatch);
  EXPECT_NE(refused.message().find("rank 0"), std::string::npos) << refused.message();
  EXPECT_EQ(second, nullptr);
}

TEST_F(LifeLocks, EndWithTheirProcess) {
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<LifeLock> lock;
    if (!LifeLock::Take(file_, 1, &lock).ok()) _exit(1);
    Tell('h');
    _exit(0);
  }
  EXPECT_EQ(Hear(), 'h');
  EXPECT_TRUE(own_->IsHeld(1));
  Answer();
  ExpectExit(child);
  EXPECT_FALSE(own_->IsHeld(1));
}

TEST_F(LifeLocks, EndWithTheProgram) {
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<LifeLock> lock;
    if (!LifeLock::Take(file_, 1, &lock).ok()) _exit(1);
    Tell('h');
    // The shell knows descriptors of one digit.
    if (dup2(told_[1], 8) != 8 || dup2(may_go_on_[0], 9) != 9) _exit(1);
    execl("/bin/sh", "sh", "-c", "echo >&8; read line <&9", nullptr);
    _exit(1);
  }
  EXPECT_EQ(Hear(), 'h');
  EXPECT_TRUE(own_->IsHeld(1));
  Answer();
  EXPECT_EQ(Hear(), '\n');  // the other program runs
  EXPECT_FALSE(own_->IsHeld(1));
  EXPECT_EQ(write(may_go_on_[1], "\n", 1), 1);
  ExpectExit(child);
}

// It outlives its parent, and holds nothing for it.
TEST_F(LifeLocks, AreNotHeldByForkedChildren) {
  const pid_t child = fork();
  if (child == 0) {
    std::unique_ptr<LifeLock> lock;
    if (!LifeLock::Take(file_, 1, &lock).ok()) _exit(1);
    if (fork() == 0) {
      Tell('g');
      _exit(0);
    }
    _exit(0);
  }
  EXPECT_EQ(Hear(), 'g');
  ExpectExit(child);
  EXPECT_FALSE(own_->IsHeld(1));
  EXPECT_TRUE(own_->IsHeld(0));
  Answer();
}

// What a fork inherits of its parent's locks does no harm when it goes.
TEST_F(LifeLocks, StayWhenAForkedChildEnds) {
  std::unique_ptr<LifeLock> other;
  ASSERT_TRUE(LifeLock::Take(file_, 1, &other).ok());
  const pid_t child = fork();
  if (child == 0) {
    own_.reset();
    _exit(0);
  }
  ExpectExit(child);
  EXPECT_TRUE(other->IsHeld(0));
}

}  // namespace
}  // namespace occl
