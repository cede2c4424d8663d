#include "python/csrc/c10d/errors.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

#include "python/csrc/runtime/blocking.h"

namespace torch_openreg {

std::string GroupIdentity::to_string() const {
  std::string text = c10::str("rank ", rank, " of ", size);
  if (!global_ranks.empty() && global_rank() != static_cast<std::uint64_t>(rank)) {
    text += c10::str(" (global rank ", global_rank(), ")");
  }
  text += c10::str(" in group '", name, "'");
  if (!desc.empty() && desc != "undefined") {
    text += c10::str(" (", desc, ")");
  }
  return text;
}

std::string failure_message(const GroupIdentity& group, const char* operation,
                            std::uint64_t sequence, occlResult_t result,
                            const std::string& detail) {
  std::string text = c10::str("OCCL ", operation, " #", sequence, " on ", group.to_string(),
                              result == occlTimeout ? " failed with a timeout (" : " failed (",
                              occlGetErrorString(result), ")");
  if (!detail.empty()) {
    text += c10::str(": ", detail);
  }
  return text + group.tell_global_ranks();
}

// The library's sentences count in the group.
std::string GroupIdentity::tell_global_ranks() const {
  constexpr std::size_t kMost = 16;
  bool same = true;
  std::string list;
  for (std::size_t i = 0; i < global_ranks.size(); ++i) {
    same = same && global_ranks[i] == i;
    if (i < kMost) {
      list += c10::str(i == 0 ? "" : ", ", global_ranks[i]);
    }
  }
  if (same) {
    return "";
  }
  return c10::str(" (the group's ranks from 0 on are the global ranks ", list,
                  global_ranks.size() > kMost ? ", ..." : "", ")");
}

void throw_failure(occlResult_t result, const std::string& message) {
  switch (result) {
    case occlInvalidArgument:
    case occlInvalidUsage:
      C10_THROW_ERROR(ValueError, message);
    case occlNotSupported:
      C10_THROW_ERROR(NotImplementedError, message);
    default:
      C10_THROW_ERROR(DistBackendError, message);
  }
}

std::exception_ptr make_exception(occlResult_t result, const std::string& message) {
  try {
    throw_failure(result, message);
  } catch (...) {
    return std::current_exception();
  }
}

bool is_callers_mistake(occlResult_t result) {
  return result == occlInvalidArgument || result == occlInvalidUsage || result == occlNotSupported;
}

std::string last_error_text(occlResult_t result, occlComm_t comm) {
  const std::string own = occlGetLastError(nullptr);
  if (is_callers_mistake(result) || comm == nullptr) {
    return own;
  }
  const std::string of_communicator = occlGetLastError(comm);
  return of_communicator.empty() ? own : of_communicator;
}

GilReleaseIfHeld::GilReleaseIfHeld() {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    state_ = PyEval_SaveThread();
  }
}

GilReleaseIfHeld::~GilReleaseIfHeld() {
  if (state_ != nullptr) {
    come_back_from_wait(state_);
  }
}

GilReleaseForWait::~GilReleaseForWait() {
  if (!held()) {
    come_back_from_wait(nullptr);
  }
}

void check_signals() {
  if (Py_IsInitialized() == 0 || gettid() != getpid()) {
    return;
  }
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw pybind11::error_already_set();
  }
}

}  // namespace torch_openreg
