#include "openreg/runtime/config.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace openreg {
namespace {

TEST(ParseDeviceCount, TakesNumbersInRange) {
  int count = 0;
  ASSERT_TRUE(ParseDeviceCount(nullptr, &count).ok());
  EXPECT_EQ(count, 8);
  ASSERT_TRUE(ParseDeviceCount("", &count).ok());
  EXPECT_EQ(count, 8);
  ASSERT_TRUE(ParseDeviceCount("1", &count).ok());
  EXPECT_EQ(count, 1);
  ASSERT_TRUE(ParseDeviceCount("64", &count).ok());
  EXPECT_EQ(count, 64);
  for (const char* bad : {"0", "65", "-1", "8x", "eight", "99999999999999999999"}) {
    Status status = ParseDeviceCount(bad, &count);
    EXPECT_EQ(status.code(), orErrorInitializationError) << bad;
    EXPECT_NE(std::string(status.message()).find(bad), std::string::npos);
  }
}

TEST(ParseMemorySize, TakesSuffixes) {
  uint64_t bytes = 0;
  const std::pair<const char*, uint64_t> good[] = {{"1", 1},
                                                   {"4096", 4096},
                                                   {"3K", 3 << 10},
                                                   {"5m", 5 << 20},
                                                   {"7G", uint64_t{7} << 30},
                                                   {"2t", uint64_t{2} << 40}};
  for (const auto& [text, expected] : good) {
    ASSERT_TRUE(ParseMemorySize(text, &bytes).ok()) << text;
    EXPECT_EQ(bytes, expected) << text;
  }
  for (const char* bad : {"0", "-1", "K", "1KB", "1.5G", "65T", "99999999999999999999", "G1"}) {
    EXPECT_EQ(ParseMemorySize(bad, &bytes).code(), orErrorInitializationError) << bad;
  }
}

TEST(ParseMemorySize, DefaultsToTheMachine) {
  uint64_t bytes = 0;
  ASSERT_TRUE(ParseMemorySize(nullptr, &bytes).ok());
  EXPECT_EQ(bytes, SystemMemoryBytes());
  EXPECT_GT(bytes, uint64_t{64} << 20);
  EXPECT_GT(SystemAvailableBytes(), 0u);
  EXPECT_LE(SystemAvailableBytes(), bytes);
}

// Of a process in another one: tests/distributed/test_limits.py, which needs the right to make one.
TEST(InOtherMemoryCgroup, IsFalseForAChildAndTrueForWhoIsHidden) {
  EXPECT_FALSE(InOtherMemoryCgroup(getpid()));
  const pid_t child = fork();
  if (child == 0) pause();
  EXPECT_FALSE(InOtherMemoryCgroup(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(InOtherMemoryCgroup(0));
}

}  // namespace
}  // namespace openreg
