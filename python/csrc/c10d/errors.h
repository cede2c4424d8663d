// How a failure of an OCCL operation becomes an exception of torch, and how waits end early.
#ifndef PYTHON_CSRC_C10D_ERRORS_H_
#define PYTHON_CSRC_C10D_ERRORS_H_

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "occl/api/occl.h"

namespace torch_openreg {

// Who we are and in which group: what every message names. Constant after construction.
struct GroupIdentity {
  std::string name;
  std::string desc;
  int rank = 0;
  int size = 1;
  std::vector<std::uint64_t> global_ranks;  // empty: the ranks of the group are the global ones
  std::string members;                      // these, as ranks tell each other: "4,7"

  std::uint64_t global_rank() const {
    return global_ranks.empty() ? static_cast<std::uint64_t>(rank)
                                : global_ranks.at(static_cast<std::size_t>(rank));
  }
  // "rank 1 of 4 (global rank 5) in group '3' (mesh_dp)"
  std::string to_string() const;
  // " (the group's ranks from 0 on are the global ranks 4, 5)"; "" where they are the same.
  std::string tell_global_ranks() const;
};

// "all_reduce #12 on rank 1 of 2 in group '0' failed: <detail> [occlRemoteError...]"
std::string failure_message(const GroupIdentity& group, const char* operation,
                            std::uint64_t sequence, occlResult_t result, const std::string& detail);

// The operation of a group for which something is done. Refers to what it is made of.
struct Occasion {
  const GroupIdentity& group;
  const char* operation = "init";  // static storage
  std::uint64_t sequence = 0;
  std::string failure(occlResult_t result, const std::string& detail) const {
    return failure_message(group, operation, sequence, result, detail);
  }
};

// The exception that stands for `result`: the caller's mistakes (occlInvalidArgument,
// occlInvalidUsage) are ValueError, occlNotSupported is NotImplementedError, everything else is
// DistBackendError.
std::exception_ptr make_exception(occlResult_t result, const std::string& message);
[[noreturn]] void throw_failure(occlResult_t result, const std::string& message);

// The communicator is as it was.
bool is_callers_mistake(occlResult_t result);
// OCCL's own words for a failure that a call has just returned on this thread.
std::string last_error_text(occlResult_t result, occlComm_t comm);

// Releases the interpreter lock for the life of the object if this thread holds it. While the
// interpreter ends, a thread that has held it does not come back.
class GilReleaseIfHeld {
 public:
  GilReleaseIfHeld();
  ~GilReleaseIfHeld();
  GilReleaseIfHeld(const GilReleaseIfHeld&) = delete;
  GilReleaseIfHeld& operator=(const GilReleaseIfHeld&) = delete;

 protected:
  bool held() const { return state_ != nullptr; }

 private:
  void* state_ = nullptr;
};

// For what waits for other ranks, on a thread of the program: it does not come back either where
// torch's binding has released the lock.
class GilReleaseForWait : public GilReleaseIfHeld {
 public:
  GilReleaseForWait() = default;
  ~GilReleaseForWait();
};

// Runs Python's signal handlers if this is the main thread; what they raise (KeyboardInterrupt)
// goes through as a C++ exception. Waits call it every kSignalInterval.
void check_signals();
inline constexpr std::chrono::milliseconds kSignalInterval{50};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_ERRORS_H_
