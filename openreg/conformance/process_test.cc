// The life of a process: fork, exit with work in flight, the environment's variables, limits.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "openreg/conformance/conformance.h"
#include "openreg/conformance/processes.h"

namespace openreg_conformance {
namespace {

// ---------------------------------------------------------------------------- children's roles

// Runs `body` in a forked child of this process; its result is the child's exit code.
template <class F>
int InFork(F body) {
  pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int ForksAfterUse(Channel) {
  void* ptr = nullptr;
  OR_EXPECT_OK(orMalloc(&ptr, 100));
  Stream stream;
  Event event;
  int failed = InFork([&]() -> int {
    int count = 0;
    if (orGetDeviceCount(&count) != orSuccess || count < 1) return 1;
    void* other = nullptr;
    if (orMalloc(&other, 100) != orErrorInitializationError) return 2;
    if (std::strlen(orGetLastErrorMessage()) == 0) return 3;
    if (orFree(ptr) != orErrorInitializationError) return 4;
    if (orStreamQuery(stream) != orErrorInitializationError) return 5;
    if (orEventRecord(event, stream) != orErrorInitializationError) return 6;
    if (orStreamDestroy(stream) != orErrorInitializationError) return 7;
    if (orDeviceSynchronizeTimeout(0, kDeadlineMs) != orErrorInitializationError) return 8;
    return 0;
  });
  OR_EXPECT_OK(orFree(ptr));  // the parent goes on
  return failed;
}

int ForksBeforeUse(Channel) {
  int count = 0;
  OR_EXPECT_OK(orGetDeviceCount(&count));  // this is no use
  int failed = InFork([]() -> int {
    void* ptr = nullptr;
    if (orMalloc(&ptr, 100) != orSuccess) return 1;
    std::memset(KernelPointer(ptr), 1, 100);
    return orFree(ptr) == orSuccess ? 0 : 2;
  });
  void* ptr = nullptr;
  OR_EXPECT_OK(orMalloc(&ptr, 100));
  return failed;
}

// Leaves main while a kernel runs that will not end soon, with work queued behind it.
int ExitsWithWorkInFlight(Channel channel) {
  orStream_t stream;
  OR_EXPECT_OK(orStreamCreate(&stream));
  OR_EXPECT_OK(orLaunchHostFunc(stream, [](void*) { usleep(50000); }, nullptr));
  for (int i = 0; i < 100; ++i) {
    OR_EXPECT_OK(orLaunchHostFunc(stream, [](void*) { usleep(100000); }, nullptr));
  }
  channel.Send('x');
  return 0;
}

int ExitsWithHungKernel(Channel channel) {
  orStream_t stream;
  OR_EXPECT_OK(orStreamCreate(&stream));
  OR_EXPECT_OK(orLaunchHostFunc(
      stream,
      [](void*) {
        while (true) pause();
      },
      nullptr));
  channel.Send('x');
  return 0;
}

int ExitsAfterUseFromStaticDestructor(Channel) {
  static struct AtEnd {
    void* ptr = nullptr;
    ~AtEnd() {
      // Runs after the runtime's exit handler: memory can still be freed, waits do not hang.
      if (orFree(ptr) != orSuccess) std::_Exit(9);
      (void)orDeviceSynchronizeTimeout(0, kDeadlineMs);
    }
  } at_end;
  OR_EXPECT_OK(orMalloc(&at_end.ptr, 100));
  return 0;
}

int ReportsCountAndMemory(Channel channel) {
  int count = 0;
  size_t free = 0, total = 0;
  channel.Send(static_cast<int>(orGetDeviceCount(&count)));
  channel.Send(count);
  channel.Send(static_cast<int>(orMemGetInfo(&free, &total)));
  channel.Send(total);
  return 0;
}

// Allocates until refused; the sum is the limit or little less.
int FillsTheMemory(Channel channel) {
  size_t sum = 0;
  for (size_t size : {size_t{8} << 20, size_t{1} << 20, size_t{100} << 10}) {
    for (int device = 0; device < 2; ++device) {
      OR_EXPECT_OK(orSetDevice(device));
      void* ptr = nullptr;
      while (orMalloc(&ptr, size) == orSuccess) {
        std::memset(KernelPointer(ptr), 1, size);
        sum += size;
      }
      EXPECT_EQ(orGetLastError(), orErrorMemoryAllocation);
    }
  }
  channel.Send(sum);
  return 0;
}

int WorksInLittleAddressSpace(Channel channel) {
  rlimit limit{size_t{3} << 30, size_t{3} << 30};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  for (int device = 0; device < 3; ++device) {
    OR_EXPECT_OK(orSetDevice(device));
    void* ptr = nullptr;
    OR_EXPECT_OK(orMalloc(&ptr, size_t{1} << 20));
    if (ptr == nullptr) return 1;
    std::memset(KernelPointer(ptr), 1, size_t{1} << 20);
    OR_EXPECT_ERROR(orErrorMemoryAllocation, orMalloc(&ptr, size_t{100} << 30));
  }
  channel.Send('x');
  return 0;
}

int WorksWithSmallFileLimit(Channel channel) {
  rlimit limit{size_t{64} << 20, size_t{64} << 20};
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  void* ptr = nullptr;
  OR_EXPECT_OK(orMalloc(&ptr, size_t{1} << 20));
  OR_EXPECT_ERROR(orErrorMemoryAllocation, orMalloc(&ptr, size_t{100} << 20));
  channel.Send('x');
  return 0;
}

int RunsOutOfDescriptors(Channel channel) {
  rlimit limit{16, 16};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  void* ptr = nullptr;
  EXPECT_NE(orMalloc(&ptr, 100), orSuccess);
  EXPECT_STRNE(orGetLastErrorMessage(), "");
  // Given back, because a search for leaks at exit needs some.
  for (int fd : taken) close(fd);
  channel.Send('x');
  return 0;
}

// ---------------------------------------------------------------------------- tests

int RunRoleOnce(const char* role, const std::string& environment = "") {
  Child child(role, environment);
  return child.Wait();
}

TEST(Fork, AfterUseIsAnError) { EXPECT_EQ(RunRoleOnce("forks_after_use"), 0); }
TEST(Fork, BeforeUseIsFine) { EXPECT_EQ(RunRoleOnce("forks_before_use"), 0); }

TEST(Exit, WithWorkInFlightIsClean) { EXPECT_EQ(RunRoleOnce("exits_with_work_in_flight"), 0); }
TEST(Exit, WithAHungKernelDoesNotHang) { EXPECT_EQ(RunRoleOnce("exits_with_hung_kernel"), 0); }
TEST(Exit, StaticDestructorsMayFree) { EXPECT_EQ(RunRoleOnce("exits_after_static_destructor"), 0); }

TEST(Environment, CountAndMemoryAreRead) {
  Child count("reports", "OPENREG_DEVICE_COUNT=3");
  EXPECT_EQ(count.channel().Receive<int>(), orSuccess);
  EXPECT_EQ(count.channel().Receive<int>(), 3);
  EXPECT_EQ(count.Wait(), 0);
  Child memory("reports", "OPENREG_DEVICE_MEMORY=64M");
  memory.channel().Receive<int>();
  memory.channel().Receive<int>();
  EXPECT_EQ(memory.channel().Receive<int>(), orSuccess);
  EXPECT_EQ(memory.channel().Receive<size_t>(), size_t{64} << 20);
  EXPECT_EQ(memory.Wait(), 0);
}

TEST(Environment, BadValuesAreErrors) {
  for (const char* bad :
       {"OPENREG_DEVICE_COUNT=0", "OPENREG_DEVICE_COUNT=65", "OPENREG_DEVICE_COUNT=many",
        "OPENREG_DEVICE_MEMORY=-1", "OPENREG_DEVICE_MEMORY=12Q", "OPENREG_DEVICE_MEMORY=0"}) {
    Child child("reports", bad);
    EXPECT_EQ(child.channel().Receive<int>(), orErrorInitializationError) << bad;
    child.channel().Receive<int>();
    EXPECT_EQ(child.channel().Receive<int>(), orErrorInitializationError) << bad;
    child.channel().Receive<size_t>();
    EXPECT_EQ(child.Wait(), 0);
  }
}

TEST(Limits, DeviceMemoryIsCountedOverAllDevices) {
  Child child("fills_the_memory", "OPENREG_DEVICE_MEMORY=64M");
  size_t sum = child.channel().Receive<size_t>();
  EXPECT_LE(sum, size_t{64} << 20);
  EXPECT_GE(sum, size_t{60} << 20);
  EXPECT_EQ(child.Wait(), 0);
}

TEST(Limits, AddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs terabytes of addresses";
#endif
  EXPECT_EQ(RunRoleOnce("little_address_space"), 0);
}
TEST(Limits, FileSize) { EXPECT_EQ(RunRoleOnce("small_file_limit"), 0); }
TEST(Limits, Descriptors) { EXPECT_EQ(RunRoleOnce("no_descriptors"), 0); }

}  // namespace

const NamedRole kRoles[] = {{"forks_after_use", ForksAfterUse},
                            {"forks_before_use", ForksBeforeUse},
                            {"exits_with_work_in_flight", ExitsWithWorkInFlight},
                            {"exits_with_hung_kernel", ExitsWithHungKernel},
                            {"exits_after_static_destructor", ExitsAfterUseFromStaticDestructor},
                            {"reports", ReportsCountAndMemory},
                            {"fills_the_memory", FillsTheMemory},
                            {"little_address_space", WorksInLittleAddressSpace},
                            {"small_file_limit", WorksWithSmallFileLimit},
                            {"no_descriptors", RunsOutOfDescriptors},
                            {nullptr, nullptr}};

}  // namespace openreg_conformance
