#include "openreg/runtime/futex.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace openreg {
namespace {

TEST(Deadline, PassesWhenItsTimeHasCome) {
  EXPECT_FALSE(Deadline::Infinite().Passed());
  EXPECT_FALSE(Deadline::AfterMs(-1).Passed());
  EXPECT_TRUE(Deadline::AfterMs(-1).infinite());
  EXPECT_TRUE(Deadline::AfterMs(0).Passed());
  EXPECT_FALSE(Deadline::AfterMs(1000000).Passed());
  EXPECT_TRUE(Deadline::AfterMs(INT64_MAX).infinite());
  EXPECT_EQ(Deadline::Infinite().RemainingMs(17), 17);
  EXPECT_EQ(Deadline::AfterMs(0).RemainingMs(17), 0);
  int64_t slice_ns = Deadline::Infinite().Slice(5).at_ns();
  EXPECT_LE(slice_ns, NowNs() + 5000000);
}

TEST(Futex, WaitEndsAtTheDeadline) {
  std::atomic<uint32_t> word{7};
  EXPECT_FALSE(FutexWait(&word, 7, Deadline::AfterMs(5)));
  EXPECT_TRUE(FutexWait(&word, 8, Deadline::AfterMs(100000))) << "another value: no wait";
}

TEST(FutexLock, ExcludesThreads) {
  FutexLock lock;
  int counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        std::lock_guard<FutexLock> guard(lock);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 80000);
}

TEST(FutexLock, LockUntilGivesUp) {
  FutexLock lock;
  lock.lock();
  std::thread([&] { EXPECT_FALSE(lock.LockUntil(Deadline::AfterMs(5))); }).join();
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.LockUntil(Deadline::AfterMs(0)));
  lock.unlock();
}

}  // namespace
}  // namespace openreg
