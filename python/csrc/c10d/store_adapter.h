// c10d::Store as the key-value interface in which ranks meet.
#ifndef PYTHON_CSRC_C10D_STORE_ADAPTER_H_
#define PYTHON_CSRC_C10D_STORE_ADAPTER_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "occl/api/occl.h"
#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/presence.h"
#include "python/csrc/c10d/timed_store.h"

namespace torch_openreg {

// For calls of OCCL that take a store. An exception of the store, or Ctrl-C, ends such a call with
// occlSystemError or occlAborted; rethrow_if() then raises what really happened.
class StoreAdapter {
 public:
  // The keys are `prefix` + OCCL's. The prefix is unique for each meeting for `purpose` (static
  // storage) in the store: ranks count theirs in it, so a second world in one process does not read
  // the first's keys.
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, int rank, const char* purpose);
  // For a meeting whose place in the ranks' count they know.
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const std::string& place);
  // What the second form was given; "" of the first.
  const std::string& place() const { return place_; }
  // Where to look for ranks that die before they come; `occasion` is for the message.
  void watch(std::vector<Announcement> peers, const Occasion& occasion) {
    presence_ = std::make_unique<Presence>(std::move(peers));
    set_occasion(occasion);
  }
  void set_occasion(const Occasion& occasion) {
    group_ = occasion.group;
    operation_ = occasion.operation;
    sequence_ = occasion.sequence;
  }
  // As Presence::find_no_show; looks every kPresenceInterval only, and shortly. Ranks of which
  // say_left was called have not died.
  NoShow find_no_show(bool at_once = false);
  // `rank` leaves in order though not all have joined.
  void say_left(int rank) const;
  // "; rank 1 (pid 4711) runs, ...": what is known of these ranks, which have not come in time; or
  // that the store does not answer.
  std::string tell_of(const std::vector<int>& missing);
  [[noreturn]] void raise(const NoShow& no_show) const;

  // For one call of OCCL.
  const occlStore_t* interface() {
    error_ = nullptr;
    return &interface_;
  }
  // Throws what a call of the store ended with, if that is why OCCL gave `result`. Once: Python's
  // exceptions end the process when they are raised again.
  void rethrow_if(occlResult_t result) {
    if (error_ && (result == occlSystemError || result == occlAborted)) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  static occlResult_t set(void* context, const char* key, const void* value, size_t size);
  static occlResult_t get(void* context, const char* key, void* value, size_t capacity,
                          size_t* size, int64_t timeout_ms);
  static occlResult_t add(void* context, const char* key, int64_t delta, int64_t* sum);
  occlResult_t read(const std::string& key, void* value, size_t capacity, size_t* size,
                    int64_t timeout_ms);
  // What a call of the store throws, for rethrow_if.
  occlResult_t keep_error() noexcept;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string place_;
  const std::string prefix_;
  occlStore_t interface_;
  std::exception_ptr error_;
  std::string silence_;  // what the last read ended with, where the store has not answered
  std::unique_ptr<Presence> presence_;
  GroupIdentity group_;
  const char* operation_ = "init";
  std::uint64_t sequence_ = 0;
  std::string left_key(int rank) const;

  std::string last_key_;                                 // of the last read
  std::chrono::steady_clock::time_point asked_since_{};  // for that key, again and again
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_STORE_ADAPTER_H_
