// The last operations of this process, always on: what a hang or a failure is explained with.
#ifndef PYTHON_CSRC_C10D_FLIGHT_RECORDER_H_
#define PYTHON_CSRC_C10D_FLIGHT_RECORDER_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "python/csrc/c10d/errors.h"

namespace torch {
struct CapturedTraceback;
}

namespace torch_openreg {

// A ring of TORCH_FR_BUFFER_SIZE (2000) operations of all groups of the process. A dump is the
// pickle that torch.distributed.flight_recorder reads (format 2.10); the names of operations carry
// its prefix "nccl:", because the tool knows no other. Python frames are recorded only if
// TORCH_FR_PYTHON_STACK=1: gathering them costs more than a small collective. Thread-safe.
class FlightRecorder {
 public:
  enum class State : std::uint8_t { kScheduled, kStarted, kCompleted, kFailed };

  struct Operation {
    const char* name = nullptr;  // static storage: "all_reduce"
    int peer = -1;               // of send and recv
    std::uint64_t collective_sequence = 0;
    std::uint64_t point_to_point_sequence = 0;
    std::uint64_t operation_id = 0;
    std::int64_t timeout_ms = 0;
    bool is_point_to_point = false;
  };

  static FlightRecorder& get();

  // Returns the number to finish it with.
  std::uint64_t record(const std::shared_ptr<const GroupIdentity>& group,
                       const Operation& operation, c10::ArrayRef<at::Tensor> inputs,
                       c10::ArrayRef<at::Tensor> outputs);
  // Times are CLOCK_MONOTONIC; 0 if it never started.
  void finish(std::uint64_t id, State state, std::int64_t start_ns, std::int64_t end_ns);

  // The whole recording as torch's tool expects it. May be called on any thread; with frames, it
  // takes the interpreter lock.
  c10::IValue dump(bool only_active) const;
  std::string pickled(bool only_active) const;
  // One line per operation, newest last, at most `limit`.
  std::string summary(std::size_t limit) const;
  // Writes the dump to the file that TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE)
  // names, with the global rank appended. Returns the path, "" if the variable is not set or the
  // file cannot be written (a warning says so).
  std::string write_dump(std::uint64_t global_rank) const;
  void reset();

 private:
  struct Entry {
    std::uint64_t id = 0;
    std::shared_ptr<const GroupIdentity> group;
    Operation operation;
    State state = State::kScheduled;
    std::int64_t created_ns = 0;  // CLOCK_MONOTONIC, as the others
    std::int64_t started_ns = 0;
    std::int64_t ended_ns = 0;
    std::vector<std::int64_t> sizes;  // of the inputs, then of the outputs
    std::vector<std::int64_t> dims;   // how many of sizes belong to each tensor
    std::vector<c10::ScalarType> dtypes;
    std::size_t inputs = 0;  // of dims and dtypes
    std::shared_ptr<torch::CapturedTraceback> traceback;
    std::thread::id thread;
  };

  FlightRecorder();
  static std::string profiling_name(const Entry& entry);
  c10::IValue entry_value(const Entry& entry, std::int64_t to_unix_ns,
                          std::map<std::string, std::int64_t>* group_numbers) const;
  std::vector<Entry> snapshot() const;

  const std::size_t capacity_;
  const bool python_frames_;
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Entry> ring_;
  std::uint64_t next_id_ = 0;
  std::uint64_t first_id_ = 0;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_FLIGHT_RECORDER_H_
