// How the ranks of a group tell each other about their symmetric memory.
#ifndef PYTHON_CSRC_C10D_SYMMETRIC_TRADE_H_
#define PYTHON_CSRC_C10D_SYMMETRIC_TRADE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "python/csrc/c10d/store_adapter.h"

namespace torch_openreg {

// Through the group's store. What asks it takes at most the group's timeout, and ends when a rank
// has died or the group is aborted, here or by another rank: DistBackendError. Without the
// interpreter lock.
class SymmetricTrade {
 public:
  // All ranks make theirs in one order. `what` is for messages.
  SymmetricTrade(c10d::ProcessGroup& group, std::string what);
  // `kind`: one value each of every rank.
  void put(const char* kind, const void* value, std::size_t bytes);
  // Returns how many bytes `rank` has put, at most `capacity`.
  std::size_t get(const char* kind, int rank, void* value, std::size_t capacity);

 private:
  StoreDeadline deadline() const;

  const std::chrono::milliseconds timeout_;
  const std::uint64_t group_id_;  // 0: of another backend
  const int rank_;
  const std::string what_;
  std::unique_ptr<StoreAdapter> adapter_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_SYMMETRIC_TRADE_H_
