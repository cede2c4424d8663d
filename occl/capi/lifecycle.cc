// Communicators from init to destroy.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "occl/bootstrap/store_meeting.h"
#include "occl/bootstrap/unique_id.h"
#include "occl/capi/shim.h"

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
  const char* text = std::getenv("OCCL_TIMEOUT_MS");
  if (text == nullptr || text[0] == '\0') return kDefaultTimeout_ms;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  return *end == '\0' ? value : kDefaultTimeout_ms;
}

std::string NextName() {
  static std::atomic<int> next{0};
  return "occl" + std::to_string(next.fetch_add(1, std::memory_order_relaxed));
}

Status ReadConfig(const char* function, int nranks, int rank, const occlConfig_t* config,
                  CommSettings* settings) {
  static const int64_t default_timeout_ms = TimeoutFromEnvironment();
  if (nranks < 1 || nranks > occl::kMaxRanks) {
    return Error(occlInvalidArgument, "%s: nranks is %d, expected 1 to %d", function, nranks,
                 occl::kMaxRanks);
  }
  if (rank < 0 || rank >= nranks) {
    return Error(occlInvalidArgument, "%s: rank is %d, expected 0 to %d", function, rank,
                 nranks - 1);
  }
  static constexpr occlConfig_t kDefaults = OCCL_CONFIG_INITIALIZER;
  if (config == nullptr) config = &kDefaults;
  if (config->structSize != sizeof(occlConfig_t)) {
    return Error(occlInvalidArgument,
                 "%s: config->structSize is %zu, expected %zu: set it with "
                 "OCCL_CONFIG_INITIALIZER",
                 function, config->structSize, sizeof(occlConfig_t));
  }
  settings->nranks = nranks;
  settings->rank = rank;
  settings->name = config->name != nullptr ? config->name : NextName();
  settings->timeout_ms = config->timeout_ms == INT64_MIN ? default_timeout_ms : config->timeout_ms;
  settings->init_timeout_ms =
      config->initTimeout_ms == INT64_MIN ? kDefaultInitTimeout_ms : config->initTimeout_ms;
  settings->device = config->device;
  if (config->device < 0) {
    OCCL_RETURN_IF_ERROR(occl::FromRuntime(orGetDevice(&settings->device), "orGetDevice"));
  }
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
    OCCL_RETURN_IF_ERROR(ReadConfig("occlCommInitRank", nranks, rank, config, &settings));
    occl::UniqueIdStore keys;
    OCCL_RETURN_IF_ERROR(occl::UniqueIdStore::Connect(uniqueId, nranks, &keys));
    const occlStore_t store = keys.AsStore();
    occl::StoreMeeting meeting(store, "");
    Ref<Comm> created;
    OCCL_RETURN_IF_ERROR(Comm::Create(settings, &meeting, &created));
    *comm = ToHandle(std::move(created));
    return Status();
  });
}

occlResult_t occlCommInitRankStore(occlComm_t* comm, int nranks, int rank, const occlStore_t* store,
                                   const occlConfig_t* config) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommInitRankStore", comm);
    OCCL_CHECK_NOT_NULL("occlCommInitRankStore", store);
    OCCL_CHECK_NOT_NULL("occlCommInitRankStore", store->set);
    OCCL_CHECK_NOT_NULL("occlCommInitRankStore", store->get);
    CommSettings settings;
    OCCL_RETURN_IF_ERROR(ReadConfig("occlCommInitRankStore", nranks, rank, config, &settings));
    std::string prefix = "occl/";
    if (config != nullptr && config->name != nullptr) prefix += settings.name + "/";
    occl::StoreMeeting meeting(*store, prefix);
    Ref<Comm> created;
    OCCL_RETURN_IF_ERROR(Comm::Create(settings, &meeting, &created));
    *comm = ToHandle(std::move(created));
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
    static_cast<void>(object->Fail(Error(occlAborted, "communicator %s was aborted by rank %s: %s",
                                         object->name(), object->peers.Name(object->rank()).c_str(),
                                         reason != nullptr ? reason : "no reason given")));
    return Status();
  });
}

occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar, occlDataType_t datatype,
                                      occlComm_t comm) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", op);
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", scalar);
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", comm);
    int number = 0;
    OCCL_RETURN_IF_ERROR(FromHandle(comm)->factors.Create(scalar, datatype, &number));
    *op = static_cast<occlRedOp_t>(number);
    return Status();
  });
}

occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRedOpDestroy", comm);
    return FromHandle(comm)->factors.Destroy(static_cast<int>(op));
  });
}

occlResult_t occlMemAlloc(void** ptr, size_t size_bytes) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlMemAlloc", ptr);
    return occl::FromRuntime(orMalloc(ptr, size_bytes), "orMalloc");
  });
}

occlResult_t occlMemFree(void* ptr) {
  return Run([&]() -> Status { return occl::FromRuntime(orFree(ptr), "orFree"); });
}

}  // extern "C"
