// A peer's device memory, mapped whole: any buffer of it is (arena, offset).
#ifndef OCCL_TRANSPORT_DIRECT_PEER_ARENA_H_
#define OCCL_TRANSPORT_DIRECT_PEER_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "occl/base/status.h"
#include "openreg/api/openreg.h"

namespace occl {

class PeerArena {
 public:
  // Opens the arena behind the handle; communicators of this process that name the same handle
  // share it. Blocks for at most timeout_ms.
  static Status Open(const orIpcDeviceHandle_t& handle, int64_t timeout_ms,
                     std::shared_ptr<PeerArena>* arena);

  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;
  ~PeerArena();

  // Where [offset, offset + size_bytes) of the peer's arena lies here; NULL if it is not all
  // inside.
  unsigned char* At(uint64_t offset, uint64_t size_bytes) const {
    if (offset > size_bytes_ || size_bytes > size_bytes_ - offset) return nullptr;
    return base_ + offset;
  }

 private:
  explicit PeerArena(orIpcDevice_t device) : device_(device) {}

  const orIpcDevice_t device_;
  unsigned char* base_ = nullptr;
  size_t size_bytes_ = 0;
};

// The code that blames the same as the runtime's, with its own message; or success.
Status FromRuntime(orError_t error, const char* call);

}  // namespace occl

#endif  // OCCL_TRANSPORT_DIRECT_PEER_ARENA_H_
