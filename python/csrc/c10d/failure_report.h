// What is told of a failure on this rank, once: a line, what every rank did last, a file.
#ifndef PYTHON_CSRC_C10D_FAILURE_REPORT_H_
#define PYTHON_CSRC_C10D_FAILURE_REPORT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "occl/api/occl.h"
#include "python/csrc/c10d/errors.h"

namespace torch_openreg {

// Which failures of a group have been told of on this rank. A program that tries again and again in
// a group that has failed gets one report. Thread-safe.
class FailureReports {
 public:
  // What fails by itself, with the group still good; kGroup: all else.
  enum class Of : std::uint8_t { kGroup, kMonitoredBarrier, kSplit, kShrink, kSymmetricMemory };

  // True for the first who asks, who then tells of it.
  bool first(Of of) { return (told_.fetch_or(bit(of)) & bit(of)) == 0; }
  bool told(Of of) const { return (told_.load() & bit(of)) != 0; }
  // It works (again): the next failure is another one.
  void forget(Of of) { told_.fetch_and(~bit(of)); }

 private:
  static std::uint32_t bit(Of of) { return std::uint32_t{1} << static_cast<int>(of); }

  std::atomic<std::uint32_t> told_{0};
};

// Logs a failure, with what follows it, and writes the flight recorder's dump if that is asked for.
void log_failure(const GroupIdentity& group, const std::string& message,
                 const std::string& history) noexcept;
// From now on nothing is logged: the program is ending for a reason of its own.
void log_no_failures();

// One line per rank, with its last operations and their states; "" if nothing is known. Does not
// wait for anybody: it works while ranks hang and after they have died.
std::string history_of_all_ranks(occlComm_t comm, int size);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_FAILURE_REPORT_H_
