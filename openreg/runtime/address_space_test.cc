#include "openreg/runtime/address_space.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "openreg/runtime/arena.h"
#include "openreg/runtime/fork_guard.h"

namespace openreg {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

class AddressSpaceTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(space_->Reserve().ok()); }

  Region* Map(size_t size) {
    int fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    Region* region = nullptr;
    Status status = space_->Map(fd, size, &region);
    EXPECT_TRUE(status.ok()) << status.message();
    close(fd);
    space_->Publish(region);
    return region;
  }

  std::unique_ptr<AddressSpace> space_ = std::make_unique<AddressSpace>();
};

TEST_F(AddressSpaceTest, KernelRangeIsAtOneDelta) {
  Region* first = Map(kMegabyte);
  Region* second = Map(3 * kMegabyte);
  for (Region* region : {first, second}) {
    char* kernel = region->device_base + space_->delta();
    kernel[0] = 1;
    kernel[region->size - 1] = 2;
    EXPECT_TRUE(space_->Contains(region->device_base));
    EXPECT_FALSE(space_->ContainsKernel(region->device_base));
    EXPECT_TRUE(space_->ContainsKernel(kernel));
    EXPECT_FALSE(space_->Contains(kernel));
    space_->Unmap(region);
  }
}

TEST_F(AddressSpaceTest, FindsTheRegionOfEachAddress) {
  Region* first = Map(kMegabyte);
  Region* second = Map(5 * kMegabyte + 4096);
  EXPECT_EQ(space_->Find(first->device_base), first);
  EXPECT_EQ(space_->Find(first->device_base + kMegabyte - 1), first);
  EXPECT_EQ(space_->Find(first->device_base + kMegabyte), nullptr);
  EXPECT_EQ(space_->Find(second->device_base + 5 * kMegabyte + 4095), second);
  EXPECT_EQ(space_->Find(second->device_base + 5 * kMegabyte + 4096), nullptr);
  EXPECT_EQ(space_->Find(nullptr), nullptr);
  int local;
  EXPECT_EQ(space_->Find(&local), nullptr);
  EXPECT_EQ(space_->Find(second->device_base + space_->delta()), nullptr);
  space_->Unmap(first);
  EXPECT_EQ(space_->Find(second->device_base), second);
  space_->Unmap(second);
}

TEST_F(AddressSpaceTest, UnmapGivesTheAddressesBack) {
  size_t free = space_->LargestFree();
  std::vector<Region*> regions;
  for (int i = 0; i < 10; ++i) regions.push_back(Map(kMegabyte));
  char* middle = regions[5]->device_base;
  space_->Unmap(regions[5]);
  EXPECT_EQ(space_->Find(middle), nullptr);
  regions[5] = Map(kMegabyte);
  EXPECT_LT(regions[5]->device_base, regions[6]->device_base) << "lowest free place";
  for (Region* region : regions) space_->Unmap(region);
  EXPECT_EQ(space_->LargestFree(), free);
}

TEST_F(AddressSpaceTest, RefusesWhatDoesNotFit) {
  Region* region = nullptr;
  Status status = space_->Map(-1, space_->LargestFree() + kMegabyte, &region);
  EXPECT_EQ(status.code(), orErrorMapBufferObject);
  size_t free = space_->LargestFree();
  status = space_->Map(-1, kMegabyte, &region);  // no such descriptor
  EXPECT_EQ(status.code(), orErrorMapBufferObject);
  EXPECT_EQ(space_->LargestFree(), free);
}

TEST_F(AddressSpaceTest, DeviceRangeFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Region* region = Map(kMegabyte);
  EXPECT_DEATH(*static_cast<volatile char*>(region->device_base) = 1, "");
  space_->Unmap(region);
}

TEST_F(AddressSpaceTest, ArenaIsSealedAndSparse) {
  Arena arena;
  Status status = Arena::Create(space_.get(), 0, size_t{64} << 30, &arena);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(arena.size(), 0u);
  EXPECT_NE(ftruncate(arena.fd, 4096), 0) << "sealed against shrinking";
  EXPECT_NE(ftruncate(arena.fd, static_cast<off_t>(arena.size() * 2)), 0) << "and growing";
  char* bytes = arena.device_base() + space_->delta();
  bytes[5 * kMegabyte] = 7;
  arena.Punch(4 * kMegabyte, 4 * kMegabyte);
  EXPECT_EQ(bytes[5 * kMegabyte], 0);
  space_->Unmap(arena.region);
  CloseTracked(arena.fd);
}

}  // namespace
}  // namespace openreg
