// The memory of one device: an anonymous file (memfd), sparse, sealed against changes of its size,
// mapped once into the address space. Peers get its descriptor.
#ifndef OPENREG_RUNTIME_ARENA_H_
#define OPENREG_RUNTIME_ARENA_H_

#include <cstddef>

#include "openreg/runtime/address_space.h"
#include "openreg/runtime/status.h"

namespace openreg {

struct Arena {
  int fd = -1;
  Region* region = nullptr;

  char* device_base() const { return region->device_base; }
  size_t size() const { return region->size; }

  // Makes an arena of at most `size` bytes (less where addresses or file sizes are limited) for
  // `device`. The region is not published yet.
  static Status Create(AddressSpace* space, int device, size_t size, Arena* arena);
  // Takes the pages of a range now instead of when they are touched; false: there are none.
  bool Commit(size_t offset, size_t size) const;
  // Gives the pages of a range back to the system; reading them again gives zeros.
  void Punch(size_t offset, size_t size) const;
};

// The seals that every arena has and that an importer demands: without them a peer could shrink the
// file under our mapping (SIGBUS).
inline constexpr int kArenaSeals = 0x0002 | 0x0004;  // F_SEAL_SHRINK | F_SEAL_GROW

}  // namespace openreg
#endif  // OPENREG_RUNTIME_ARENA_H_
