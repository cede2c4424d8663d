#include "python/csrc/c10d/failure_report.h"

#include <c10/util/StringUtil.h>

#include <cstddef>
#include <exception>
#include <vector>

#include "occl/api/occl_debug.h"
#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/runtime/log.h"

namespace torch_openreg {
namespace {

constexpr std::size_t kOperationsPerRank = 4;
constexpr std::size_t kMaxRecords = 64;  // as many as OCCL keeps

std::atomic<bool> leaving{false};

const char* state_name(int state) {
  switch (state) {
    case 0:
      return "queued";
    case 1:
      return "started";
    case 2:
      return "complete";
    default:
      return "failed";
  }
}

std::string describe(const occlOpRecord_t& record) {
  std::string text = c10::str(record.operation, " #", record.sequence);
  if (record.root >= 0) {
    text += c10::str(" (", record.tag >= 0 ? "peer " : "root ", record.root, ")");
  }
  return text + c10::str(" of ", record.count, " elements ", state_name(record.state));
}

}  // namespace

void log_failure(const GroupIdentity& group, const std::string& message,
                 const std::string& history) noexcept {
  if (leaving.load(std::memory_order_relaxed)) {
    return;
  }
  const auto rank = static_cast<std::int64_t>(group.global_rank());
  try {
    const std::string dump = FlightRecorder::get().write_dump(group.global_rank());
    log_line(Severity::kError, rank,
             message + history + (dump.empty() ? "" : "\nflight recorder: " + dump));
  } catch (const std::exception& error) {
    log_line(Severity::kError, rank,
             c10::str(message, " (and reporting it failed: ", error.what(), ")"));
  }
}

void log_no_failures() {
  leaving.store(true, std::memory_order_relaxed);
  if (occlSetDebugLevel != nullptr) {  // an extra of OCCL's
    (void)occlSetDebugLevel("NONE");
  }
}

std::string history_of_all_ranks(occlComm_t comm, int size) {
  std::vector<int> dead(static_cast<std::size_t>(size), 0);
  if (occlCommGetDeadRanks(comm, dead.data()) != occlSuccess) {
    dead.assign(dead.size(), 0);
  }
  std::string text;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<occlOpRecord_t> records(kMaxRecords);
    std::size_t count = records.size();
    if (occlCommGetHistory(comm, rank, records.data(), &count) != occlSuccess) {
      continue;
    }
    std::int64_t pid = 0;
    (void)occlCommGetRankPid(comm, rank, &pid);
    text += c10::str("\n  rank ", rank, " (process ", pid,
                     dead[static_cast<std::size_t>(rank)] != 0 ? ", dead" : "", "):");
    for (std::size_t i = count > kOperationsPerRank ? count - kOperationsPerRank : 0; i < count;
         ++i) {
      text += " " + describe(records[i]) + (i + 1 < count ? ";" : "");
    }
    if (count == 0) {
      text += " no operation";
    }
  }
  return text.empty() ? text : "\nlast operations of each rank:" + text;
}

}  // namespace torch_openreg
