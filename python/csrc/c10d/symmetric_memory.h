// Symmetric memory: allocations that every rank of a group reads and writes in place.
#ifndef PYTHON_CSRC_C10D_SYMMETRIC_MEMORY_H_
#define PYTHON_CSRC_C10D_SYMMETRIC_MEMORY_H_

#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <vector>

#include "python/csrc/c10d/peer_process.h"

namespace torch_openreg {

class ProcessGroupOCCL;

// The group's backend for this device; nullptr if it has none, or another.
ProcessGroupOCCL* backend_of(c10d::ProcessGroup& group);

// One allocation of this rank: [buffer | signal pad]. Freed with the last reference.
struct SymmetricBlock {
  SymmetricBlock(std::size_t buffer_bytes, c10::DeviceIndex device, std::string default_group);
  ~SymmetricBlock();
  SymmetricBlock(const SymmetricBlock&) = delete;
  SymmetricBlock& operator=(const SymmetricBlock&) = delete;

  const std::size_t buffer_bytes;
  const std::size_t pad_offset;  // bytes from `base`
  const std::size_t pad_bytes;
  const c10::DeviceIndex device;
  const std::string default_group;  // "" if none was named
  void* base = nullptr;             // device address
};

// The blocks of all ranks of a group, addressable here. Constant after construction; the imports
// end with the last reference.
struct SymmetricPeers {
  struct Import {
    explicit Import(void* address) : base(address) {}
    ~Import();
    Import(const Import&) = delete;
    Import& operator=(const Import&) = delete;
    void* const base;
  };

  std::shared_ptr<SymmetricBlock> own;
  std::vector<std::unique_ptr<Import>> imports;
  std::vector<void*> buffers, pads;    // device addresses by rank
  void** buffers_on_device = nullptr;  // the same as arrays in device memory
  void** pads_on_device = nullptr;
  std::vector<PeerProcess> processes;                 // by rank
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;  // a later group may have the same name
  std::string group_name;
  std::function<void(const std::string&)> report;  // tells of a failure, if it is the first
  std::function<std::string()> find_abort;         // why the group is over, "" while it is not
  const int rank;
  const int size;

  explicit SymmetricPeers(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
  ~SymmetricPeers();
  SymmetricPeers(const SymmetricPeers&) = delete;
  SymmetricPeers& operator=(const SymmetricPeers&) = delete;
  // "rank 1 of 4 in group '0'"
  std::string to_string() const;
};

// Signals are 32-bit words of the pads: word (channel * ranks + source) of rank r's pad is set to 1
// by `source` and set back to 0 by r. All three synchronisations are stream-ordered on the current
// stream of the memory's device and return without waiting; a failure (timeout, a peer's end, an
// abort of the group) is raised by the next synchronise of that stream. timeout_ms 0 stands for
// torch.distributed's default timeout of 30 minutes, where CUDA's waits for ever. Thread-safe.
class SymmetricMemoryOCCL final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  SymmetricMemoryOCCL(std::shared_ptr<const SymmetricPeers> peers, std::size_t offset_bytes)
      : peers_(std::move(peers)), offset_bytes_(offset_bytes) {}

  std::vector<void*> get_buffer_ptrs() override { return peers_->buffers; }
  std::vector<void*> get_signal_pad_ptrs() override { return peers_->pads; }
  void** get_buffer_ptrs_dev() override { return peers_->buffers_on_device; }
  void** get_signal_pad_ptrs_dev() override { return peers_->pads_on_device; }
  std::size_t get_buffer_size() override { return peers_->own->buffer_bytes; }
  std::size_t get_offset() override { return offset_bytes_; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }

  // Returns once all ranks have come to it, on the stream.
  void barrier(int channel, std::size_t timeout_ms) override;
  // Waits, on the stream, until an earlier signal of the channel has been taken.
  void put_signal(int dst_rank, int channel, std::size_t timeout_ms) override;
  void wait_signal(int src_rank, int channel, std::size_t timeout_ms) override;

  int get_rank() override { return peers_->rank; }
  int get_world_size() override { return peers_->size; }
  c10::Device get_device() override { return {c10::DeviceType::PrivateUse1, peers_->own->device}; }
  bool world_within_direct_access() override { return true; }

 private:
  void check_channel(int channel) const;
  void check_rank(int rank, const char* what) const;

  const std::shared_ptr<const SymmetricPeers> peers_;
  const std::size_t offset_bytes_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_SYMMETRIC_MEMORY_H_
