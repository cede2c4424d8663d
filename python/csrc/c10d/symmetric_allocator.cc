#include "python/csrc/c10d/symmetric_allocator.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/symmetric_trade.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/status.h"

namespace torch_openreg {
namespace {

constexpr std::uint64_t kMagic = 0x4f43434c53594d4d;  // "OCCLSYMM"
constexpr std::size_t kMaxReport = 1024;
constexpr const char* kMapped = "mapped";

// What each rank says about its block. Checked by its readers.
struct BlockCard {
  std::uint64_t magic;
  std::uint64_t buffer_bytes;
  std::uint64_t pad_offset;
  std::uint64_t pad_bytes;
  ProcessCard process;
  orIpcMemHandle_t handle;
};

BlockCard card_of(const SymmetricBlock& block) {
  BlockCard card{};
  card.magic = kMagic;
  card.buffer_bytes = block.buffer_bytes;
  card.pad_offset = block.pad_offset;
  card.pad_bytes = block.pad_bytes;
  card.process = own_process_card();
  OR_CHECK(orIpcGetMemHandle(&card.handle, block.base));
  return card;
}

void check_card(const BlockCard& card, std::size_t bytes, int rank, const SymmetricPeers& peers) {
  const SymmetricBlock& own = *peers.own;
  TORCH_CHECK(bytes == sizeof(card) && card.magic == kMagic, "symmetric memory rendezvous of ",
              peers.to_string(), ": what rank ", rank, " sent is not symmetric memory of openreg");
  TORCH_CHECK_VALUE(card.buffer_bytes == own.buffer_bytes && card.pad_bytes == own.pad_bytes,
                    "symmetric memory rendezvous of ", peers.to_string(),
                    ": all ranks have to bring memory of one size: rank ", peers.rank, " has ",
                    own.buffer_bytes, " bytes (signal pad ", own.pad_bytes, "), rank ", rank,
                    " has ", card.buffer_bytes, " (signal pad ", card.pad_bytes, ")");
}

// Maps the memory of each rank; "" or what went wrong.
std::string import_all(const std::vector<BlockCard>& cards, SymmetricPeers* peers) {
  for (int rank = 0; rank < peers->size; ++rank) {
    const BlockCard& card = cards[static_cast<std::size_t>(rank)];
    void* base = peers->own->base;
    if (rank != peers->rank) {
      const orError_t opened = orIpcOpenMemHandle(&base, &card.handle);
      if (opened != orSuccess) {
        return c10::str("rank ", peers->rank, " cannot map the memory of rank ", rank, " (process ",
                        card.process.pid, "): ", orGetErrorString(opened), ": ",
                        orGetLastErrorMessage());
      }
      peers->imports.push_back(std::make_unique<SymmetricPeers::Import>(base));
    }
    peers->buffers.push_back(base);
    peers->pads.push_back(static_cast<char*>(base) + card.pad_offset);
    peers->processes.emplace_back(card.process);
  }
  return "";
}

void put_addresses_on_device(SymmetricPeers* peers) {
  const DeviceScope scope(peers->own->device);
  const auto size = static_cast<std::size_t>(peers->size);
  const std::size_t bytes = size * sizeof(void*);
  void* memory = nullptr;
  OR_CHECK(orMalloc(&memory, 2 * bytes));
  peers->buffers_on_device = static_cast<void**>(memory);
  peers->pads_on_device = peers->buffers_on_device + size;
  OR_CHECK(orMemcpy(memory, static_cast<const void*>(peers->buffers.data()), bytes,
                    orMemcpyHostToDevice));
  OR_CHECK(orMemcpy(static_cast<void*>(peers->pads_on_device),
                    static_cast<const void*>(peers->pads.data()), bytes, orMemcpyHostToDevice));
}

void meet(const c10::intrusive_ptr<c10d::ProcessGroup>& group, SymmetricPeers* peers) {
  const std::string what = "symmetric memory rendezvous of " + peers->to_string();
  SymmetricTrade trade(*group, what);

  const BlockCard own = card_of(*peers->own);
  trade.put("block", &own, sizeof(own));
  std::vector<BlockCard> cards(static_cast<std::size_t>(peers->size));
  for (int rank = 0; rank < peers->size; ++rank) {
    BlockCard& card = cards[static_cast<std::size_t>(rank)];
    check_card(card, trade.get("block", rank, &card, sizeof(card)), rank, *peers);
  }
  // Nobody goes on, and frees perhaps, before all have mapped all.
  const std::string failure = import_all(cards, peers);
  const std::string own_report = failure.empty() ? kMapped : failure.substr(0, kMaxReport);
  trade.put("mapped", own_report.data(), own_report.size());
  for (int rank = 0; rank < peers->size; ++rank) {
    std::string report(kMaxReport, '\0');
    report.resize(trade.get("mapped", rank, report.data(), report.size()));
    if (report != kMapped) {
      C10_THROW_ERROR(DistBackendError, c10::str(what, ": ", report));
    }
  }
  put_addresses_on_device(peers);
}

std::shared_ptr<const SymmetricPeers> meet_or_report(
    const std::shared_ptr<SymmetricBlock>& block,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& group_name) {
  const GilReleaseIfHeld no_gil;
  auto peers = std::make_shared<SymmetricPeers>(group);
  peers->own = block;
  peers->group_name = group_name;
  try {
    meet(group, peers.get());
  } catch (const c10::DistError& error) {
    peers->report(error.what_without_backtrace());
    throw;
  }
  return peers;
}

}  // namespace

SymmetricAllocatorOCCL::Found SymmetricAllocatorOCCL::covering(void* ptr) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto after = entries_.upper_bound(ptr);
  if (after == entries_.begin()) {
    return {};
  }
  const auto& [address, entry] = *std::prev(after);
  const auto offset =
      static_cast<std::size_t>(static_cast<char*>(ptr) - static_cast<char*>(address));
  if (offset != 0 && offset >= entry.block->buffer_bytes) {
    return {};
  }
  return {entry.block, offset};
}

void* SymmetricAllocatorOCCL::alloc(std::size_t size, int device_idx,
                                    const std::optional<std::string>& group_name) {
  ensure_initialized();
  auto block =
      std::make_shared<SymmetricBlock>(size, resolve_device(device_idx), group_name.value_or(""));
  const std::lock_guard<std::mutex> lock(mutex_);
  void* const address = block->base;
  entries_[address].block = std::move(block);
  return address;
}

void SymmetricAllocatorOCCL::free(void* ptr) {
  Entry last;  // freed after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = entries_.find(ptr);
  if (found != entries_.end()) {
    last = std::move(found->second);
    entries_.erase(found);
  }
}

std::size_t SymmetricAllocatorOCCL::get_alloc_size(void* ptr) {
  const Found found = covering(ptr);
  TORCH_CHECK(found.block != nullptr && found.offset_bytes == 0,
              "symmetric memory: get_alloc_size of memory that it did not allocate");
  return found.block->buffer_bytes;
}

c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory> SymmetricAllocatorOCCL::rendezvous(
    void* ptr, const std::optional<std::string>& group_name) {
  const Found found = covering(ptr);
  TORCH_CHECK(found.block != nullptr,
              "symmetric memory rendezvous: this tensor was not made by "
              "torch.distributed._symmetric_memory.empty()");
  const std::string name =
      group_name.has_value() && !group_name->empty() ? *group_name : found.block->default_group;
  TORCH_CHECK(!name.empty(),
              "symmetric memory rendezvous: no group was named, neither now nor at allocation");
  const auto group = c10d::resolve_process_group(name);
  std::shared_ptr<const SymmetricPeers> peers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    peers = entries_[found.block->base].by_group[name];
  }
  if (peers == nullptr || peers->group.lock() != group) {
    peers = meet_or_report(found.block, group, name);
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_[found.block->base].by_group[name] = peers;
  }
  return c10::make_intrusive<SymmetricMemoryOCCL>(std::move(peers), found.offset_bytes);
}

void register_symmetric_memory() {
  c10d::symmetric_memory::register_allocator(c10::DeviceType::PrivateUse1,
                                             c10::make_intrusive<SymmetricAllocatorOCCL>());
}

}  // namespace torch_openreg
