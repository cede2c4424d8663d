// Errors, versions, datatypes: what needs no communicator, and what a communicator is asked.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "occl/base/datatypes.h"
#include "occl/capi/shim.h"

using occl::Error;
using occl::Status;
using occl::capi::FromHandle;
using occl::capi::Run;

extern "C" {

const char* occlGetErrorString(occlResult_t result) {
  switch (static_cast<int>(result)) {
    case occlSuccess:
      return "success";
    case occlUnhandledDeviceError:
      return "a call of the device runtime failed";
    case occlSystemError:
      return "a system call failed";
    case occlInternalError:
      return "internal error of OCCL";
    case occlInvalidArgument:
      return "invalid argument";
    case occlInvalidUsage:
      return "invalid usage";
    case occlRemoteError:
      return "a peer's process has ended";
    case occlInProgress:
      return "the operation is in progress";
    case occlTimeout:
      return "a peer did not come in time";
    case occlMismatch:
      return "the ranks disagree about an operation";
    case occlAborted:
      return "the communicator was aborted";
    case occlNotSupported:
      return "not supported";
  }
  return "unknown result code";
}

const char* occlGetLastError(occlComm_t comm) {
  if (comm == nullptr) return occl::capi::LastMessage();
  return occl::capi::KeepCommMessage(FromHandle(comm)->failure().message());
}

occlResult_t occlGetVersion(int* version) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlGetVersion", version);
    *version = OCCL_VERSION;
    return Status();
  });
}

size_t occlDataTypeSize(occlDataType_t datatype) { return occl::DataTypeSize(datatype); }

occlResult_t occlCommGetAsyncError(occlComm_t comm, occlResult_t* asyncError) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommGetAsyncError", comm);
    OCCL_CHECK_NOT_NULL("occlCommGetAsyncError", asyncError);
    *asyncError = FromHandle(comm)->failure().code();
    return Status();
  });
}

occlResult_t occlCommCount(occlComm_t comm, int* count) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommCount", comm);
    OCCL_CHECK_NOT_NULL("occlCommCount", count);
    *count = FromHandle(comm)->nranks();
    return Status();
  });
}

occlResult_t occlCommDevice(occlComm_t comm, int* device) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommDevice", comm);
    OCCL_CHECK_NOT_NULL("occlCommDevice", device);
    *device = FromHandle(comm)->device();
    return Status();
  });
}

occlResult_t occlCommUserRank(occlComm_t comm, int* rank) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommUserRank", comm);
    OCCL_CHECK_NOT_NULL("occlCommUserRank", rank);
    *rank = FromHandle(comm)->rank();
    return Status();
  });
}

occlResult_t occlCommGetRankPid(occlComm_t comm, int rank, int64_t* pid) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommGetRankPid", comm);
    OCCL_CHECK_NOT_NULL("occlCommGetRankPid", pid);
    if (rank < 0 || rank >= FromHandle(comm)->nranks()) {
      return Error(occlInvalidArgument, "occlCommGetRankPid: rank is %d, expected 0 to %d", rank,
                   FromHandle(comm)->nranks() - 1);
    }
    *pid = FromHandle(comm)->peers.pid(rank);
    return Status();
  });
}

occlResult_t occlCommExpectRank(occlComm_t comm, int rank, int64_t pid, int pidfd) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommExpectRank", comm);
    if (rank < 0 || rank >= FromHandle(comm)->nranks() || pid <= 0) {
      return Error(occlInvalidArgument,
                   "occlCommExpectRank: rank is %d, expected 0 to %d; pid is %lld, expected > 0",
                   rank, FromHandle(comm)->nranks() - 1, static_cast<long long>(pid));
    }
    occl::UniqueFd copy;
    if (pidfd >= 0) {
      copy = occl::UniqueFd(fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
      if (!copy.valid()) return occl::SystemError(errno, "occlCommExpectRank: dup of pidfd");
    }
    FromHandle(comm)->peers.Expect(rank, pid, std::move(copy));
    return Status();
  });
}

occlResult_t occlCommGetDeadRanks(occlComm_t comm, int* dead) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommGetDeadRanks", comm);
    OCCL_CHECK_NOT_NULL("occlCommGetDeadRanks", dead);
    occl::Peers& peers = FromHandle(comm)->peers;
    peers.Refresh();
    for (int r = 0; r < FromHandle(comm)->nranks(); ++r) dead[r] = peers.Ended(r) ? 1 : 0;
    return Status();
  });
}

occlResult_t occlCommSetTimeout(occlComm_t comm, int64_t timeout_ms) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommSetTimeout", comm);
    FromHandle(comm)->set_timeout_ms(timeout_ms);
    return Status();
  });
}

occlResult_t occlCommGetStats(occlComm_t comm, occlStats_t* stats) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommGetStats", comm);
    OCCL_CHECK_NOT_NULL("occlCommGetStats", stats);
    if (stats->structSize != sizeof(occlStats_t)) {
      return Error(occlInvalidArgument, "occlCommGetStats: structSize is %zu, expected %zu",
                   stats->structSize, sizeof(occlStats_t));
    }
    const occl::CollectiveStats& collectives = FromHandle(comm)->collective_stats;
    const occl::CommStats& messages = FromHandle(comm)->message_stats;
    stats->operations = collectives.operations.value() + messages.operations.value();
    stats->bytesMoved = collectives.bytes_moved.value() + messages.bytes_moved.value();
    stats->waitTime_ns = FromHandle(comm)->wait_ns.value();
    stats->inlineOperations =
        collectives.inline_operations.value() + messages.inline_operations.value();
    stats->oneshotOperations = collectives.oneshot.value();
    stats->directOperations = collectives.direct.value();
    stats->stagedOperations = collectives.staged.value();
    return Status();
  });
}

occlResult_t occlCommGetHistory(occlComm_t comm, int rank, occlOpRecord_t* records, size_t* n) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommGetHistory", comm);
    OCCL_CHECK_NOT_NULL("occlCommGetHistory", n);
    if (*n > 0) OCCL_CHECK_NOT_NULL("occlCommGetHistory", records);
    if (rank < 0 || rank >= FromHandle(comm)->nranks()) {
      return Error(occlInvalidArgument, "occlCommGetHistory: rank is %d, expected 0 to %d", rank,
                   FromHandle(comm)->nranks() - 1);
    }
    const auto found = occl::History::Read(&FromHandle(comm)->segment(), rank, *n);
    for (size_t i = 0; i < found.size(); ++i) records[i] = found[i];
    *n = found.size();
    return Status();
  });
}

}  // extern "C"
