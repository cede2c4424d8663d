// Communicators from init to destroy.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "occl/base/log.h"
#include "occl/bootstrap/store_meeting.h"
#include "occl/bootstrap/unique_id.h"
#include "occl/capi/shim.h"
#include "occl/core/abort_init.h"
#include "occl/core/derive.h"

using occl::Comm;
using occl::CommSettings;
using occl::Error;
using occl::Ref;
using occl::Status;
using occl::capi::FromHandle;
using occl::capi::Run;
using occl::capi::ToHandle;

namespace {

constexpr int64_t kDefaultTimeout_ms = 30 * 60 * 1000;
constexpr int64_t kDefaultInitTimeout_ms = 5 * 60 * 1000;

int64_t TimeoutFromEnvironment() {
  const char* text = occl::ReadEnvironment("OCCL_TIMEOUT_MS");
  if (text == nullptr) return kDefaultTimeout_ms;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*end == '\0') return value;
  OCCL_LOG(kWarn, occl::kLogEnv, "OCCL_TIMEOUT_MS=%s is no number of milliseconds: ignored", text);
  return kDefaultTimeout_ms;
}

std::string NextName() {
  static std::atomic<int> next{0};
  return "occl" + std::to_string(next.fetch_add(1, std::memory_order_relaxed));
}

Status CheckRanks(const char* function, int nranks, int rank) {
  if (nranks < 1 || nranks > occl::kMaxRanks) {
    return Error(occlInvalidArgument, "%s: nranks is %d, expected 1 to %d", function, nranks,
                 occl::kMaxRanks);
  }
  if (rank < 0 || rank >= nranks) {
    return Error(occlInvalidArgument, "%s: rank is %d, expected 0 to %d", function, rank,
                 nranks - 1);
  }
  return Status();
}

// Puts what the caller has set over what is in *settings.
Status ReadConfig(const char* function, const occlConfig_t* config, CommSettings* settings) {
  if (config == nullptr) return Status();
  if (config->structSize != sizeof(occlConfig_t)) {
    return Error(occlInvalidArgument,
                 "%s: config->structSize is %zu, expected %zu: set it with "
                 "OCCL_CONFIG_INITIALIZER",
                 function, config->structSize, sizeof(occlConfig_t));
  }
  if (config->name != nullptr) settings->name = config->name;
  if (config->members != nullptr) settings->members = config->members;
  if (config->timeout_ms != INT64_MIN) settings->timeout_ms = config->timeout_ms;
  if (config->initTimeout_ms != INT64_MIN) settings->init_timeout_ms = config->initTimeout_ms;
  if (config->device >= 0) settings->device = config->device;
  return Status();
}

Status FirstSettings(const char* function, int nranks, int rank, const occlConfig_t* config,
                     CommSettings* settings) {
  static const int64_t default_timeout_ms = TimeoutFromEnvironment();
  OCCL_RETURN_IF_ERROR(CheckRanks(function, nranks, rank));
  settings->nranks = nranks;
  settings->rank = rank;
  settings->timeout_ms = default_timeout_ms;
  settings->init_timeout_ms = kDefaultInitTimeout_ms;
  settings->device = -1;
  OCCL_RETURN_IF_ERROR(ReadConfig(function, config, settings));
  if (settings->name.empty()) settings->name = NextName();
  if (settings->device >= 0) return Status();
  return occl::FromRuntime(orGetDevice(&settings->device), "orGetDevice");
}

// The ranks that a shrink leaves out, or an error that names a wrong number.
Status ReadExcluded(const Comm& comm, const int* ranks, int count, std::vector<bool>* excluded) {
  if (count < 0) {
    return Error(occlInvalidArgument, "occlCommShrink: excludeCount is %d, expected 0 to %d", count,
                 comm.nranks() - 1);
  }
  excluded->assign(comm.nranks(), false);
  for (int i = 0; i < count; ++i) {
    if (ranks[i] < 0 || ranks[i] >= comm.nranks() || ranks[i] == comm.rank()) {
      return Error(occlInvalidArgument,
                   "occlCommShrink: excludeRanks[%d] is %d, expected another rank than %d of 0 to "
                   "%d",
                   i, ranks[i], comm.rank(), comm.nranks() - 1);
    }
    (*excluded)[ranks[i]] = true;
  }
  return Status();
}

// What ends a communicator for the ranks that still use it when this one shrinks it.
Status EndedByShrink(Comm& parent, const std::vector<bool>& excluded) {
  constexpr size_t kMostText = 183;
  const std::string left_out =
      parent.peers.Names(kMostText, [&](int r) { return bool{excluded[r]}; });
  parent.peers.Refresh();
  return Error(occlAborted, "communicator %s was shrunk by rank %s%s%s%s", parent.name(),
               parent.peers.Name(parent.rank()).c_str(),
               left_out.empty() ? "" : " without rank(s) ", left_out.c_str(),
               parent.TellDeaths().c_str());
}

// What a new communicator takes over from the one that it is made of.
CommSettings DerivedSettings(const Comm& parent) {
  CommSettings settings = parent.settings();
  settings.timeout_ms = parent.timeout_ms();
  settings.members.clear();
  return settings;
}

// Of a communicator whose ranks meet in the caller's store, each under its own name.
Status StoreSettings(const char* function, int nranks, int rank, const occlStore_t* store,
                     const occlConfig_t* config, CommSettings* settings) {
  OCCL_CHECK_NOT_NULL(function, store);
  OCCL_CHECK_NOT_NULL(function, store->set);
  OCCL_CHECK_NOT_NULL(function, store->get);
  OCCL_RETURN_IF_ERROR(FirstSettings(function, nranks, rank, config, settings));
  if (config != nullptr && config->name != nullptr) settings->key_prefix += settings->name + "/";
  return Status();
}

}  // namespace

extern "C" {

occlResult_t occlGetUniqueId(occlUniqueId* uniqueId) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlGetUniqueId", uniqueId);
    return occl::CreateUniqueId(uniqueId);
  });
}

occlResult_t occlCommInitRank(occlComm_t* comm, int nranks, occlUniqueId uniqueId, int rank,
                              const occlConfig_t* config) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommInitRank", comm);
    CommSettings settings;
    OCCL_RETURN_IF_ERROR(FirstSettings("occlCommInitRank", nranks, rank, config, &settings));
    occl::UniqueIdStore keys;
    OCCL_RETURN_IF_ERROR(occl::UniqueIdStore::Connect(uniqueId, nranks, &keys));
    const occlStore_t store = keys.AsStore();
    occl::StoreMeeting meeting(store, "", /*slices=*/false);
    Ref<Comm> created;
    const Status status = Comm::Create(settings, &meeting, &created);
    if (!status.ok()) return keys.given_up().ok() ? status : keys.given_up();
    *comm = ToHandle(std::move(created));
    return Status();
  });
}

occlResult_t occlCommInitRankStore(occlComm_t* comm, int nranks, int rank, const occlStore_t* store,
                                   const occlConfig_t* config) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommInitRankStore", comm);
    CommSettings settings;
    OCCL_RETURN_IF_ERROR(
        StoreSettings("occlCommInitRankStore", nranks, rank, store, config, &settings));
    occl::StoreMeeting meeting(*store, settings.key_prefix, /*slices=*/true);
    Ref<Comm> created;
    if (config != nullptr && config->early != 0) {
      OCCL_CHECK_NOT_NULL("occlCommInitRankStore", store->add);
      OCCL_RETURN_IF_ERROR(Comm::Join(settings, &meeting, &created));
    } else {
      OCCL_RETURN_IF_ERROR(Comm::Create(settings, &meeting, &created));
    }
    *comm = ToHandle(std::move(created));
    return Status();
  });
}

occlResult_t occlCommAbortInit(int nranks, int rank, const occlStore_t* store,
                               const occlConfig_t* config, const char* reason) {
  return Run([&]() -> Status {
    CommSettings settings;
    OCCL_RETURN_IF_ERROR(
        StoreSettings("occlCommAbortInit", nranks, rank, store, config, &settings));
    occl::StoreMeeting meeting(*store, settings.key_prefix, /*slices=*/true);
    const Status why = Error(occlAborted,
                             "communicator %s was aborted by rank %d (pid %d) before all ranks "
                             "had joined: %s",
                             settings.name.c_str(), rank, static_cast<int>(getpid()),
                             reason != nullptr ? reason : "no reason given");
    return occl::AbortInit(settings, &meeting, why);
  });
}

occlResult_t occlCommLeaveInit(int nranks, int rank, const occlStore_t* store,
                               const occlConfig_t* config, int hasJoined) {
  return Run([&]() -> Status {
    CommSettings settings;
    OCCL_RETURN_IF_ERROR(
        StoreSettings("occlCommLeaveInit", nranks, rank, store, config, &settings));
    OCCL_CHECK_NOT_NULL("occlCommLeaveInit", store->add);
    occl::StoreMeeting meeting(*store, settings.key_prefix, /*slices=*/true);
    return occl::LeaveInit(settings, &meeting, hasJoined != 0);
  });
}

occlResult_t occlCommAllJoined(occlComm_t comm, int* all) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommAllJoined", comm);
    OCCL_CHECK_NOT_NULL("occlCommAllJoined", all);
    const Comm& object = *FromHandle(comm);
    *all = 1;
    for (int r = 0; r < object.nranks(); ++r) {
      if (!object.presence.HasCome(r) && !occl::HasLeft(object.block(r))) *all = 0;
    }
    return Status();
  });
}

occlResult_t occlCommAwaitRanks(occlComm_t comm, const occlStore_t* store, int64_t timeout_ms) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommAwaitRanks", comm);
    Comm& object = *FromHandle(comm);
    const occl::Deadline deadline = occl::Deadline::After(timeout_ms);
    if (store == nullptr) return occl::AwaitRanks(object, nullptr, deadline);
    occl::StoreMeeting meeting(*store, object.settings().key_prefix, /*slices=*/true);
    return occl::AwaitRanks(object, &meeting, deadline);
  });
}

occlResult_t occlCommSplit(occlComm_t comm, int color, int key, occlComm_t* newcomm,
                           const occlConfig_t* config) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommSplit", comm);
    OCCL_CHECK_NOT_NULL("occlCommSplit", newcomm);
    if (color < 0 && color != OCCL_SPLIT_NOCOLOR) {
      return Error(occlInvalidArgument,
                   "occlCommSplit: color is %d, expected 0 or more, or "
                   "OCCL_SPLIT_NOCOLOR",
                   color);
    }
    Comm& parent = *FromHandle(comm);
    OCCL_RETURN_IF_ERROR(occl::AwaitAllRanks(parent));
    CommSettings settings = DerivedSettings(parent);
    settings.name += "/split";
    OCCL_RETURN_IF_ERROR(ReadConfig("occlCommSplit", config, &settings));
    Ref<Comm> created;
    OCCL_RETURN_IF_ERROR(occl::SplitComm(parent, color, key, std::move(settings), &created));
    *newcomm = ToHandle(std::move(created));
    return Status();
  });
}

occlResult_t occlCommShrink(occlComm_t comm, const int* excludeRanks, int excludeCount,
                            occlComm_t* newcomm, const occlConfig_t* config, int flags) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommShrink", comm);
    OCCL_CHECK_NOT_NULL("occlCommShrink", newcomm);
    if (excludeCount > 0) OCCL_CHECK_NOT_NULL("occlCommShrink", excludeRanks);
    if ((flags & ~OCCL_SHRINK_ABORT) != 0) {
      return Error(occlInvalidArgument, "occlCommShrink: unknown flags 0x%x", flags);
    }
    Comm& parent = *FromHandle(comm);
    std::vector<bool> excluded;
    OCCL_RETURN_IF_ERROR(ReadExcluded(parent, excludeRanks, excludeCount, &excluded));
    OCCL_RETURN_IF_ERROR(occl::AwaitOthers(
        parent, excluded, occl::Deadline::After(parent.settings().init_timeout_ms)));
    if ((flags & OCCL_SHRINK_ABORT) != 0) {
      static_cast<void>(parent.Fail(EndedByShrink(parent, excluded)));
    }
    CommSettings settings = DerivedSettings(parent);
    settings.name += "/shrunk";
    OCCL_RETURN_IF_ERROR(ReadConfig("occlCommShrink", config, &settings));
    Ref<Comm> created;
    OCCL_RETURN_IF_ERROR(occl::ShrinkComm(parent, excluded, std::move(settings), &created));
    *newcomm = ToHandle(std::move(created));
    return Status();
  });
}

occlResult_t occlCommFinalize(occlComm_t comm) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommFinalize", comm);
    Comm* object = FromHandle(comm);
    if (!object->WaitIdle(occl::Deadline::After(object->timeout_ms()))) {
      return Error(occlTimeout, "occlCommFinalize: %u operation(s) of communicator %s still run",
                   object->pending(), object->name());
    }
    return object->failure();
  });
}

occlResult_t occlCommDestroy(occlComm_t comm) {
  return Run([&]() -> Status {
    if (comm == nullptr) return Status();
    const Ref<Comm> object = Ref<Comm>::Adopt(FromHandle(comm));
    object->Close();
    return Status();
  });
}

occlResult_t occlCommAbort(occlComm_t comm, const char* reason) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommAbort", comm);
    Comm* object = FromHandle(comm);
    object->peers.Refresh();
    static_cast<void>(object->Fail(
        Error(occlAborted, "communicator %s was aborted by rank %s: %s%s", object->name(),
              object->peers.Name(object->rank()).c_str(),
              reason != nullptr ? reason : "no reason given", object->TellDeaths().c_str())));
    return Status();
  });
}

}  // extern "C"
