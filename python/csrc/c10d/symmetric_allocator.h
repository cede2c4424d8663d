// torch.distributed._symmetric_memory on openreg devices: the allocator that torch asks.
#ifndef PYTHON_CSRC_C10D_SYMMETRIC_ALLOCATOR_H_
#define PYTHON_CSRC_C10D_SYMMETRIC_ALLOCATOR_H_

#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "python/csrc/c10d/symmetric_memory.h"

namespace torch_openreg {

// Peers map each other's blocks through the runtime's IPC, so a peer's buffer is memory of this
// process: a tensor on it (get_buffer) is read and written in place by every operator. Ranks have
// to share a host. Thread-safe.
class SymmetricAllocatorOCCL final : public c10d::symmetric_memory::SymmetricMemoryAllocator {
 public:
  // Memory on device_idx (-1: the current device) with a signal pad behind it, zeroed.
  void* alloc(std::size_t size, int device_idx,
              const std::optional<std::string>& group_name) override;
  // The memory goes when no SymmetricMemory of it is left, here or in a peer.
  void free(void* ptr) override;
  std::size_t get_alloc_size(void* ptr) override;
  // Collective over the group: blocks without the interpreter lock until all ranks have come with
  // memory of the same size, at most the group's timeout. A second call with the same memory and
  // group returns at once. Throws DistBackendError on every rank if one cannot map another's
  // memory, ValueError if sizes differ.
  c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory> rendezvous(
      void* ptr, const std::optional<std::string>& group_name) override;
  bool has_multicast_support(int /*device_idx*/) override { return false; }
  c10::DeviceType supported_device_type() override { return c10::DeviceType::PrivateUse1; }
  std::string name() override { return "OCCL"; }
  bool has_allocation(void* ptr) override { return covering(ptr).block != nullptr; }

 private:
  struct Entry {
    std::shared_ptr<SymmetricBlock> block;
    std::map<std::string, std::shared_ptr<const SymmetricPeers>> by_group;
  };
  struct Found {
    std::shared_ptr<SymmetricBlock> block;
    std::size_t offset_bytes = 0;
  };
  Found covering(void* ptr);

  std::mutex mutex_;                // guards entries_
  std::map<void*, Entry> entries_;  // by address
};

// Called once when the module is imported; brings no device to life.
void register_symmetric_memory();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_SYMMETRIC_ALLOCATOR_H_
