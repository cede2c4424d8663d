// Memory and events between processes.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "openreg/conformance/conformance.h"
#include "openreg/conformance/processes.h"

namespace openreg_conformance {
namespace {

// Is true, or becomes it before the deadline. Needed where another process's end is to be noticed.
template <class F>
bool Eventually(F condition) {
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    usleep(1000);
  }
  return true;
}

// ---------------------------------------------------------------------------- children's roles

// Opens a memory handle, answers with what is there, writes, closes when told.
int MemoryImporter(Channel channel) {
  auto handle = channel.Receive<orIpcMemHandle_t>();
  void *ptr = nullptr, *again = nullptr;
  OR_EXPECT_OK(orIpcOpenMemHandle(&ptr, &handle));
  OR_EXPECT_OK(orIpcOpenMemHandle(&again, &handle));
  EXPECT_EQ(ptr, again);
  auto* values = static_cast<int*>(KernelPointer(ptr));
  channel.Send(values[0]);
  values[1] = 4321;
  orPointerAttributes attributes;
  OR_EXPECT_OK(orPointerGetAttributes(&attributes, static_cast<char*>(ptr) + 10));
  EXPECT_EQ(attributes.imported, 1);
  EXPECT_EQ(attributes.type, orMemoryTypeDevice);
  EXPECT_EQ(attributes.base, ptr);
  EXPECT_EQ(attributes.size, 1000u);
  int value = 0;
  OR_EXPECT_OK(orMemcpy(&value, ptr, sizeof value, orMemcpyDeviceToHost));
  EXPECT_EQ(value, values[0]);
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemcpy(&value, static_cast<char*>(ptr) + 998,
                                                        sizeof value, orMemcpyDeviceToHost));
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orFree(ptr));
  channel.Send('o');
  channel.Receive<char>();
  OR_EXPECT_OK(orIpcCloseMemHandle(ptr));
  OR_EXPECT_OK(orIpcCloseMemHandle(ptr));
  EXPECT_NE(orIpcCloseMemHandle(ptr), orSuccess);
  channel.Send('c');
  channel.Receive<char>();
  return 0;
}

// Opens a device, adds one to the int at the offset that it is told.
int DeviceImporter(Channel channel) {
  auto handle = channel.Receive<orIpcDeviceHandle_t>();
  orIpcDevice_t device, again;
  OR_EXPECT_OK(orIpcOpenDevice(&device, &handle, kDeadlineMs));
  OR_EXPECT_OK(orIpcOpenDevice(&again, &handle, kDeadlineMs));
  orArenaInfo arena, same;
  OR_EXPECT_OK(orIpcDeviceGetArena(device, &arena));
  OR_EXPECT_OK(orIpcDeviceGetArena(again, &same));
  EXPECT_EQ(arena.kernelBase, same.kernelBase) << "a device is mapped once";
  OR_EXPECT_OK(orIpcCloseDevice(again));
  EXPECT_EQ(KernelPointer(arena.deviceBase), arena.kernelBase) << "one delta for all";
  auto offset = channel.Receive<size_t>();
  ++*reinterpret_cast<int*>(static_cast<char*>(arena.kernelBase) + offset);
  channel.Send(arena.size);
  channel.Receive<char>();
  OR_EXPECT_OK(orIpcCloseDevice(device));
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orIpcCloseDevice(device));
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orIpcDeviceGetArena(device, &arena));
  return 0;
}

// Tries a handle of memory and answers with the error.
int Opener(Channel channel) {
  auto handle = channel.Receive<orIpcMemHandle_t>();
  void* ptr = nullptr;
  channel.Send(static_cast<int>(orIpcOpenMemHandle(&ptr, &handle)));
  channel.Receive<char>();
  return 0;
}

// Records an event of its parent behind work that ends when it is told to ('e'); 'x' exits.
int EventRecorder(Channel channel) {
  auto handle = channel.Receive<orIpcEventHandle_t>();
  orEvent_t event;
  OR_EXPECT_OK(orIpcOpenEventHandle(&event, &handle));
  Stream stream;
  Gate gate;
  gate.Block(stream);
  OR_EXPECT_OK(orEventRecord(event, stream));
  channel.Send('r');
  while (channel.Receive<char>() != 'x') {
    gate.Open();
    EXPECT_TRUE(Drains(stream));
    channel.Send('e');
  }
  gate.Open();
  OR_EXPECT_OK(orEventDestroy(event));
  return 0;
}

// Owns memory and an event, hands both out, then does as told: 'r' records, 'x' exits.
int Owner(Channel channel) {
  void* ptr = nullptr;
  OR_EXPECT_OK(orMalloc(&ptr, 1000));
  std::memset(KernelPointer(ptr), 0x11, 1000);
  orIpcMemHandle_t memory;
  orIpcDeviceHandle_t device;
  orIpcEventHandle_t event_handle;
  OR_EXPECT_OK(orIpcGetMemHandle(&memory, ptr));
  OR_EXPECT_OK(orIpcGetDeviceHandle(&device, 0));
  Event event(orEventInterprocess | orEventDisableTiming);
  OR_EXPECT_OK(orIpcGetEventHandle(&event_handle, event));
  channel.Send(memory);
  channel.Send(device);
  channel.Send(event_handle);
  Stream stream;
  Gate gate;
  while (true) {
    switch (channel.Receive<char>()) {
      case 'b':  // record behind work that does not end
        gate.Block(stream);
        OR_EXPECT_OK(orEventRecord(event, stream));
        channel.Send('b');
        break;
      case 'e':
        gate.Open();
        break;
      case 'x':
        gate.Open();
        return 0;
    }
  }
}

struct Owned {
  orIpcMemHandle_t memory;
  orIpcDeviceHandle_t device;
  orIpcEventHandle_t event;
  explicit Owned(Channel& channel)
      : memory(channel.Receive<orIpcMemHandle_t>()),
        device(channel.Receive<orIpcDeviceHandle_t>()),
        event(channel.Receive<orIpcEventHandle_t>()) {}
};

// ---------------------------------------------------------------------------- tests

int64_t ActiveBlocks() {
  OR_EXPECT_OK(orIpcCollect());
  orMemStats stats{};
  stats.structSize = sizeof stats;
  EXPECT_TRUE(Succeeds(orMemGetStats(0, &stats)));
  return stats.all.active.current;
}

TEST(IpcMemory, IsSharedAndKept) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  auto* values = static_cast<int*>(KernelPointer(ptr));
  values[0] = 1234;
  int64_t active = ActiveBlocks();
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, static_cast<char*>(ptr) + 100));
  Child child("memory_importer");
  child.channel().Send(handle);
  EXPECT_EQ(child.channel().Receive<int>(), 1234);
  EXPECT_EQ(child.channel().Receive<char>(), 'o');
  EXPECT_EQ(values[1], 4321);
  // Freed here, still used there.
  OR_ASSERT_OK(orFree(ptr));
  EXPECT_EQ(ActiveBlocks(), active);
  child.channel().Send('c');
  EXPECT_EQ(child.channel().Receive<char>(), 'c');
  EXPECT_EQ(ActiveBlocks(), active - 1);
  child.channel().Send('x');
  EXPECT_EQ(child.Wait(), 0);
}

TEST(IpcMemory, IsReleasedWhenTheImporterDies) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  int64_t active = ActiveBlocks();
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, ptr));
  Child child("memory_importer");
  child.channel().Send(handle);
  child.channel().Receive<int>();
  EXPECT_EQ(child.channel().Receive<char>(), 'o');
  OR_ASSERT_OK(orFree(ptr));
  EXPECT_EQ(ActiveBlocks(), active);
  child.Kill();
  EXPECT_EQ(child.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return ActiveBlocks() == active - 1; }));
}

TEST(IpcMemory, HandleOfFreedMemoryIsRefused) {
  void *ptr = nullptr, *next = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, ptr));
  OR_ASSERT_OK(orFree(ptr));
  OR_ASSERT_OK(orMalloc(&next, 1000));  // likely the same place
  Child child("opener");
  child.channel().Send(handle);
  EXPECT_EQ(child.channel().Receive<int>(), orErrorInvalidResourceHandle);
  child.channel().Send('x');
  EXPECT_EQ(child.Wait(), 0);
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orIpcOpenMemHandle(&ptr, &handle));
  OR_ASSERT_OK(orFree(next));
}

TEST(IpcMemory, FreedMemoryThatIsRetainedCanBeOpened) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  auto* values = static_cast<int*>(KernelPointer(ptr));
  values[0] = 1234;
  int64_t active = ActiveBlocks();
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, ptr));
  OR_ASSERT_OK(orMemRetain(ptr));
  OR_ASSERT_OK(orFree(ptr));
  Child child("memory_importer");
  child.channel().Send(handle);
  EXPECT_EQ(child.channel().Receive<int>(), 1234);
  EXPECT_EQ(child.channel().Receive<char>(), 'o');
  OR_ASSERT_OK(orMemRelease(ptr));
  EXPECT_EQ(ActiveBlocks(), active) << "the importer has it now";
  child.channel().Send('c');
  EXPECT_EQ(child.channel().Receive<char>(), 'c');
  EXPECT_EQ(ActiveBlocks(), active - 1);
  child.channel().Send('x');
  EXPECT_EQ(child.Wait(), 0);
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orMemRetain(ptr));
}

TEST(IpcMemory, OwnHandleGivesTheOriginal) {
  void *ptr = nullptr, *opened = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, ptr));
  OR_ASSERT_OK(orIpcOpenMemHandle(&opened, &handle));
  EXPECT_EQ(opened, ptr);
  int64_t active = ActiveBlocks();
  OR_ASSERT_OK(orFree(ptr));
  EXPECT_EQ(ActiveBlocks(), active);
  OR_ASSERT_OK(orIpcCloseMemHandle(opened));
  EXPECT_EQ(ActiveBlocks(), active - 1);
  EXPECT_NE(orIpcCloseMemHandle(opened), orSuccess);
}

TEST(IpcMemory, BadArgumentsAreRecognised) {
  int local = 0;
  orIpcMemHandle_t handle;
  OR_EXPECT_ERROR(orErrorInvalidDevicePointer, orIpcGetMemHandle(&handle, &local));
  std::memset(&handle, 0, sizeof handle);
  void* ptr = nullptr;
  OR_EXPECT_ERROR(orErrorInvalidValue, orIpcOpenMemHandle(&ptr, &handle));
  std::memset(&handle, 0xff, sizeof handle);
  OR_EXPECT_ERROR(orErrorInvalidValue, orIpcOpenMemHandle(&ptr, &handle));
  orIpcDeviceHandle_t device;
  OR_ASSERT_OK(orIpcGetDeviceHandle(&device, 0));
  std::memcpy(&handle, &device, sizeof handle);  // of another kind
  OR_EXPECT_ERROR(orErrorInvalidValue, orIpcOpenMemHandle(&ptr, &handle));
  OR_EXPECT_ERROR(orErrorInvalidDevice, orIpcGetDeviceHandle(&device, -1));
}

// Handles with single bytes changed: an error, or the right memory, never a crash.
TEST(IpcMemory, DamagedHandlesDoNoHarm) {
  Child owner("owner");
  Owned owned(owner.channel());
  for (size_t i = 0; i < sizeof owned.memory; ++i) {
    orIpcMemHandle_t damaged = owned.memory;
    damaged.reserved[i] ^= 0x41;
    void* ptr = nullptr;
    if (orIpcOpenMemHandle(&ptr, &damaged) != orSuccess) continue;
    EXPECT_EQ(*static_cast<unsigned char*>(KernelPointer(ptr)), 0x11) << "byte " << i;
    OR_EXPECT_OK(orIpcCloseMemHandle(ptr));
  }
  void* ptr = nullptr;
  OR_EXPECT_OK(orIpcOpenMemHandle(&ptr, &owned.memory));
  OR_EXPECT_OK(orIpcCloseMemHandle(ptr));
  owner.channel().Send('x');
  EXPECT_EQ(owner.Wait(), 0);
}

TEST(IpcMemory, StaysReadableAfterTheOwnersDeath) {
  Child owner("owner");
  Owned owned(owner.channel());
  void* ptr = nullptr;
  OR_ASSERT_OK(orIpcOpenMemHandle(&ptr, &owned.memory));
  owner.Kill();
  EXPECT_EQ(owner.Wait(), -SIGKILL);
  EXPECT_EQ(*static_cast<unsigned char*>(KernelPointer(ptr)), 0x11);
  OR_EXPECT_OK(orIpcCloseMemHandle(ptr));
  OR_EXPECT_ERROR(orErrorPeerDead, orIpcOpenMemHandle(&ptr, &owned.memory));
  orIpcDevice_t device;
  OR_EXPECT_ERROR(orErrorPeerDead, orIpcOpenDevice(&device, &owned.device, kDeadlineMs));
}

// A stopped owner does not answer; the caller's deadline ends the wait.
TEST(IpcDevice, OpenHonoursItsDeadline) {
  Child owner("owner");
  Owned owned(owner.channel());
  owner.Stop();
  orIpcDevice_t device;
  OR_EXPECT_ERROR(orErrorTimeout, orIpcOpenDevice(&device, &owned.device, 50));
  kill(owner.pid(), SIGCONT);
  OR_EXPECT_OK(orIpcOpenDevice(&device, &owned.device, kDeadlineMs));
  OR_EXPECT_OK(orIpcCloseDevice(device));
}

TEST(IpcDevice, WholeDeviceIsShared) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, sizeof(int)));
  auto* value = static_cast<int*>(KernelPointer(ptr));
  *value = 1;
  orPointerAttributes attributes;
  OR_ASSERT_OK(orPointerGetAttributes(&attributes, ptr));
  orIpcDeviceHandle_t handle;
  orArenaInfo arena;
  OR_ASSERT_OK(orIpcGetDeviceHandle(&handle, 0));
  OR_ASSERT_OK(orDeviceGetArena(0, &arena));
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(std::make_unique<Child>("device_importer"));
    children.back()->channel().Send(handle);
    children.back()->channel().Send(attributes.arenaOffset);
    EXPECT_EQ(children.back()->channel().Receive<size_t>(), arena.size);
  }
  EXPECT_EQ(*value, 4);
  for (auto& child : children) {
    child->channel().Send('x');
    EXPECT_EQ(child->Wait(), 0);
  }
  OR_ASSERT_OK(orFree(ptr));
}

TEST(IpcDevice, OwnHandleGivesTheOwnArena) {
  orIpcDeviceHandle_t handle;
  OR_ASSERT_OK(orIpcGetDeviceHandle(&handle, 0));
  orIpcDevice_t device;
  OR_ASSERT_OK(orIpcOpenDevice(&device, &handle, kDeadlineMs));
  orArenaInfo arena, own;
  OR_ASSERT_OK(orIpcDeviceGetArena(device, &arena));
  OR_ASSERT_OK(orDeviceGetArena(0, &own));
  EXPECT_EQ(arena.kernelBase, own.kernelBase);
  EXPECT_EQ(arena.size, own.size);
  OR_ASSERT_OK(orIpcCloseDevice(device));
}

TEST(IpcEvent, OrdersWorkAcrossProcesses) {
  Child owner("owner");
  Owned owned(owner.channel());
  orEvent_t event;
  OR_ASSERT_OK(orIpcOpenEventHandle(&event, &owned.event));
  EXPECT_EQ(orEventQuery(event), orSuccess) << "not recorded yet";
  owner.channel().Send('b');
  EXPECT_EQ(owner.channel().Receive<char>(), 'b');
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  OR_EXPECT_ERROR(orErrorTimeout, orEventSynchronizeTimeout(event, 20));
  Stream stream;
  std::atomic<bool> ran{false};
  KernelOf kernel{[&] {
    ran = true;
    return orSuccess;
  }};
  OR_ASSERT_OK(orStreamWaitEvent(stream, event));
  OR_ASSERT_OK(orLaunchKernel("behind", kernel.Run, &kernel, stream));
  EXPECT_FALSE(ran);
  owner.channel().Send('e');
  EXPECT_TRUE(Drains(stream));
  EXPECT_TRUE(ran);
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  OR_EXPECT_OK(orEventDestroy(event));
  owner.channel().Send('x');
  EXPECT_EQ(owner.Wait(), 0);
}

TEST(IpcEvent, OwnersDeathEndsTheWait) {
  Child owner("owner");
  Owned owned(owner.channel());
  orEvent_t event;
  OR_ASSERT_OK(orIpcOpenEventHandle(&event, &owned.event));
  owner.channel().Send('b');
  EXPECT_EQ(owner.channel().Receive<char>(), 'b');
  Stream stream;
  OR_ASSERT_OK(orStreamWaitEvent(stream, event));
  owner.Kill();
  EXPECT_EQ(owner.Wait(), -SIGKILL);
  OR_EXPECT_ERROR(orErrorPeerDead, orStreamSynchronizeTimeout(stream, kDeadlineMs));
  OR_EXPECT_ERROR(orErrorPeerDead, orEventSynchronizeTimeout(event, kDeadlineMs));
  OR_EXPECT_OK(orEventDestroy(event));
}

TEST(IpcEvent, APeersRecordIsWaitedFor) {
  Event event(orEventInterprocess | orEventDisableTiming);
  orIpcEventHandle_t handle;
  OR_ASSERT_OK(orIpcGetEventHandle(&handle, event));
  Stream stream, other;
  OR_ASSERT_OK(orEventRecord(event, stream));
  Child child("event_recorder");
  child.channel().Send(handle);
  EXPECT_EQ(child.channel().Receive<char>(), 'r');
  EXPECT_EQ(orEventQuery(event), orErrorNotReady) << "the child's record is the last one";
  OR_EXPECT_ERROR(orErrorTimeout, orEventSynchronizeTimeout(event, 20));
  OR_ASSERT_OK(orStreamWaitEvent(stream, event));
  EXPECT_EQ(orStreamQuery(stream), orErrorNotReady);
  child.channel().Send('e');
  EXPECT_EQ(child.channel().Receive<char>(), 'e');
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  EXPECT_TRUE(Drains(stream));
  // Its own again, now.
  Gate gate;
  gate.Block(other);
  OR_ASSERT_OK(orEventRecord(event, other));
  EXPECT_EQ(orEventQuery(event), orErrorNotReady);
  gate.Open();
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
  child.channel().Send('x');
  EXPECT_EQ(child.Wait(), 0);
}

TEST(IpcEvent, DeathOfWhoRecordedEndsTheWait) {
  Event event(orEventInterprocess | orEventDisableTiming);
  orIpcEventHandle_t handle;
  OR_ASSERT_OK(orIpcGetEventHandle(&handle, event));
  Child child("event_recorder");
  child.channel().Send(handle);
  EXPECT_EQ(child.channel().Receive<char>(), 'r');
  Stream stream;
  OR_ASSERT_OK(orStreamWaitEvent(stream, event));
  child.Kill();
  EXPECT_EQ(child.Wait(), -SIGKILL);
  OR_EXPECT_ERROR(orErrorPeerDead, orStreamSynchronizeTimeout(stream, kDeadlineMs));
  OR_EXPECT_ERROR(orErrorPeerDead, orEventSynchronizeTimeout(event, kDeadlineMs));
  OR_EXPECT_OK(orEventRecord(event, stream));
  OR_EXPECT_OK(orEventSynchronizeTimeout(event, kDeadlineMs));
}

TEST(IpcEvent, NeedsTheFlag) {
  Event event(orEventDisableTiming);
  orIpcEventHandle_t handle;
  OR_EXPECT_ERROR(orErrorInvalidResourceHandle, orIpcGetEventHandle(&handle, event));
}

// ---------------------------------------------------------------------------- nothing is left

struct Footprint {
  size_t descriptors, mappings, threads, shared_files;
  bool operator==(const Footprint&) const = default;
};

size_t CountEntries(const char* folder) {
  size_t count = 0;
  DIR* handle = opendir(folder);
  if (handle == nullptr) return 0;
  while (readdir(handle) != nullptr) ++count;
  closedir(handle);
  return count;
}

Footprint Measure() {
  Footprint footprint{CountEntries("/proc/self/fd"), 0, CountEntries("/proc/self/task"),
                      CountEntries("/dev/shm")};
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("memfd:") != std::string::npos) ++footprint.mappings;
  }
  return footprint;
}

TEST(Ipc, NothingIsLeftAfterPeersWereKilled) {
  void* ptr = nullptr;
  OR_ASSERT_OK(orMalloc(&ptr, 1000));
  orIpcMemHandle_t handle;
  OR_ASSERT_OK(orIpcGetMemHandle(&handle, ptr));
  auto round = [&](bool kill) {
    Child importer("memory_importer"), owner("owner");
    importer.channel().Send(handle);
    importer.channel().Receive<int>();
    importer.channel().Receive<char>();
    Owned owned(owner.channel());
    void* imported = nullptr;
    orIpcDevice_t device;
    orEvent_t event;
    OR_ASSERT_OK(orIpcOpenMemHandle(&imported, &owned.memory));
    OR_ASSERT_OK(orIpcOpenDevice(&device, &owned.device, kDeadlineMs));
    OR_ASSERT_OK(orIpcOpenEventHandle(&event, &owned.event));
    if (kill) {
      importer.Kill();
      owner.Kill();
    }
    OR_EXPECT_OK(orIpcCloseMemHandle(imported));
    OR_EXPECT_OK(orIpcCloseDevice(device));
    OR_EXPECT_OK(orEventDestroy(event));
  };
  round(true);
  int64_t active = ActiveBlocks();
  Footprint before{};
  // The first round's connection may still be open here; its end is what is waited for.
  EXPECT_TRUE(Eventually([&] {
    Footprint now = Measure();
    bool stable = now == before;
    before = now;
    return stable;
  }));
  for (int i = 0; i < 20; ++i) round(i % 2 == 0);
  EXPECT_TRUE(Eventually([&] { return Measure() == before; }))
      << "descriptors " << before.descriptors << " -> " << Measure().descriptors << ", mappings "
      << before.mappings << " -> " << Measure().mappings << ", threads " << before.threads << " -> "
      << Measure().threads;
  EXPECT_EQ(ActiveBlocks(), active);
  OR_ASSERT_OK(orFree(ptr));
}

}  // namespace

const NamedRole kRoles[] = {{"memory_importer", MemoryImporter},
                            {"device_importer", DeviceImporter},
                            {"opener", Opener},
                            {"event_recorder", EventRecorder},
                            {"owner", Owner},
                            {nullptr, nullptr}};

}  // namespace openreg_conformance
