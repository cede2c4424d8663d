// What another process may hand over as IPC handles, and send to the owner of memory, events and
// devices.
//
// Input: one byte that chooses what. Handles (0 to 2): the bytes are put over a right handle of the
// kind, beginning at the byte that is named first. Requests (3): each is two bytes of length, one
// of flags (1: right size; 2: right magic, version and secret) and the bytes. Then variables'
// values (4, 5).
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "openreg/api/openreg.h"
#include "openreg/runtime/config.h"
#include "openreg/runtime/fork_guard.h"
#include "openreg/runtime/ipc_protocol.h"

namespace openreg {
namespace {

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not true: %s (%s)\n", what, orGetLastErrorMessage());
  std::abort();
}

// What this process offers: made once, so that a run leaves nothing.
struct Offer {
  Offer() {
    Check(orMalloc(&memory, 1 << 16) == orSuccess, "memory");
    Check(orEventCreateWithFlags(&event, orEventInterprocess | orEventDisableTiming) == orSuccess,
          "event");
    Check(orIpcGetMemHandle(&memory_handle, memory) == orSuccess, "memory handle");
    Check(orIpcGetEventHandle(&event_handle, event) == orSuccess, "event handle");
    Check(orIpcGetDeviceHandle(&device_handle, 0) == orSuccess, "device handle");
  }
  void* memory = nullptr;
  orEvent_t event = nullptr;
  orIpcMemHandle_t memory_handle;
  orIpcEventHandle_t event_handle;
  orIpcDeviceHandle_t device_handle;
};

template <typename Handle>
Handle Overlaid(const Handle& right, const uint8_t* data, size_t size) {
  Handle handle = right;
  if (size == 0) return handle;
  const size_t at = data[0] % sizeof(handle);
  std::memcpy(reinterpret_cast<unsigned char*>(&handle) + at, data + 1,
              std::min(size - 1, sizeof(handle) - at));
  return handle;
}

void FuzzMemory(const Offer& offer, const uint8_t* data, size_t size) {
  const orIpcMemHandle_t handle = Overlaid(offer.memory_handle, data, size);
  void* opened = nullptr;
  if (orIpcOpenMemHandle(&opened, &handle) == orSuccess) orIpcCloseMemHandle(opened);
}

void FuzzEvent(const Offer& offer, const uint8_t* data, size_t size) {
  const orIpcEventHandle_t handle = Overlaid(offer.event_handle, data, size);
  orEvent_t opened = nullptr;
  if (orIpcOpenEventHandle(&opened, &handle) == orSuccess) orEventDestroy(opened);
}

void FuzzDevice(const Offer& offer, const uint8_t* data, size_t size) {
  const orIpcDeviceHandle_t handle = Overlaid(offer.device_handle, data, size);
  orIpcDevice_t opened = nullptr;
  if (orIpcOpenDevice(&opened, &handle, 50) != orSuccess) return;
  orArenaInfo arena;
  Check(orIpcDeviceGetArena(opened, &arena) == orSuccess && arena.size > 0, "an arena");
  Check(orIpcCloseDevice(opened) == orSuccess, "close");
}

void FuzzRequests(const Offer& offer, const uint8_t* data, size_t size) {
  IpcHandle handle;
  Check(ParseIpcHandle(&offer.device_handle, IpcKind::kDevice, &handle).ok(), "own handle");
  int fd = -1;
  if (!ConnectTo(handle.address.name, Deadline::AfterMs(1000), &fd).ok()) return;
  while (size >= 3) {
    const size_t length = std::min<size_t>(data[0] | data[1] << 8, size - 3);
    std::vector<uint8_t> bytes(data + 3, data + 3 + length);
    if ((data[2] & 1) != 0) bytes.resize(sizeof(IpcRequest));
    if ((data[2] & 2) != 0 && bytes.size() >= sizeof(IpcRequest)) {
      IpcRequest request;
      std::memcpy(&request, bytes.data(), sizeof(request));
      request.magic = kIpcMagic;
      request.version = kIpcVersion;
      std::memcpy(request.secret, handle.address.secret, sizeof(request.secret));
      std::memcpy(bytes.data(), &request, sizeof(request));
    }
    if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    data += 3 + length;
    size -= 3 + length;
  }
  shutdown(fd, SHUT_WR);
  // Until the owner has let go of the connection: so it has read everything.
  char replies[256];
  for (int i = 0; i < 1000; ++i) {
    const ssize_t got = recv(fd, replies, sizeof(replies), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
    if (got < 0) usleep(100);
  }
  CloseTracked(fd);
}

}  // namespace
}  // namespace openreg

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openreg;
  static const Offer offer;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  int count = 0;
  uint64_t bytes = 0;
  switch (data[0] % 6) {
    case 0:
      FuzzMemory(offer, data + 1, size - 1);
      break;
    case 1:
      FuzzEvent(offer, data + 1, size - 1);
      break;
    case 2:
      FuzzDevice(offer, data + 1, size - 1);
      break;
    case 3:
      FuzzRequests(offer, data + 1, size - 1);
      break;
    case 4:
      if (ParseDeviceCount(text.c_str(), &count).ok())
        Check(count >= 1 && count <= kMaxDevices, "n");
      break;
    default:
      if (ParseMemorySize(text.c_str(), &bytes).ok()) Check(bytes <= uint64_t{1} << 46, "bytes");
  }
  return 0;
}
