// libopenreg.so holds the vendor's runtime when the label_flag says so.

#include <gtest/gtest.h>

#include "openreg/api/openreg.h"

TEST(SwappedRuntime, AnswersInOpenregsPlace) {
  int count = 0, version = 0;
  ASSERT_EQ(orGetDeviceCount(&count), orSuccess);
  ASSERT_EQ(orRuntimeGetVersion(&version), orSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(version, 90000);
}
