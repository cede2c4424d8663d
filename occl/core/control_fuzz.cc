// A rank that writes what it likes into the control segment it was rightly given. The other one
// ends every operation with a result or an error, and reads nothing outside of what it has mapped.
//
// Input: one byte that chooses the operation of rank 0, one that chooses sizes, then what rank 1
// writes before it: one byte of region, two of offset (in words of eight bytes), eight of value.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "occl/api/occl.h"
#include "occl/core/comm.h"
#include "openreg/api/openreg.h"

namespace occl {
namespace {

constexpr int64_t kTimeout_ms = 3;
constexpr size_t kBufferBytes = 1 << 20;

// Where the ranks, two threads, meet.
class Store {
 public:
  occlStore_t AsStore() { return {this, &Set, &Get, nullptr}; }

 private:
  static occlResult_t Set(void* context, const char* key, const void* value, size_t size) {
    auto* store = static_cast<Store*>(context);
    std::lock_guard<std::mutex> lock(store->mutex_);
    store->values_[key].assign(static_cast<const char*>(value), size);
    return occlSuccess;
  }
  static occlResult_t Get(void* context, const char* key, void* value, size_t capacity,
                          size_t* size, int64_t timeout_ms) {
    auto* store = static_cast<Store*>(context);
    const Deadline deadline = Deadline::After(timeout_ms);
    do {
      {
        std::lock_guard<std::mutex> lock(store->mutex_);
        const auto found = store->values_.find(key);
        if (found != store->values_.end() && found->second.size() <= capacity) {
          std::memcpy(value, found->second.data(), found->second.size());
          *size = found->second.size();
          return occlSuccess;
        }
      }
      std::this_thread::yield();
    } while (!deadline.Passed());
    return occlTimeout;
  }

  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not true: %s\n", what);
  std::abort();
}

struct Pair {
  Pair() {
    const occlStore_t store = store_.AsStore();
    const auto join = [&](int rank) {
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.timeout_ms = kTimeout_ms;
      config.initTimeout_ms = 20'000;
      config.name = "fuzz";
      config.device = 0;
      Check(occlCommInitRankStore(&comms[rank], 2, rank, &store, &config) == occlSuccess, "init");
    };
    std::thread other(join, 1);
    join(0);
    other.join();
  }
  ~Pair() {
    for (occlComm_t comm : comms) occlCommDestroy(comm);
  }
  occlComm_t comms[2] = {};

 private:
  Store store_;
};

// The words of rank 1's that rank 0 looks at, and those that any rank may write.
void Scribble(ControlSegment& segment, uint8_t region, uint32_t offset_words, uint64_t value) {
  unsigned char* base = nullptr;
  size_t size = 0;
  const auto choose = [&](void* begin, size_t bytes) {
    base = static_cast<unsigned char*>(begin);
    size = bytes;
  };
  switch (region % 10) {
    case 0:
      choose(&segment.rank(1), sizeof(RankBlock));
      break;
    case 1:
      choose(&segment.round(1, 0), sizeof(RoundEntry) * kRoundPlaces);
      break;
    case 2:
      choose(segment.parts(1, 0), sizeof(PartEntry) * 2 * kRoundPlaces);
      break;
    case 3:
      choose(&segment.message(1, 0, 0), sizeof(MessageEntry) * segment.message_places());
      break;
    case 4:
      choose(&segment.message_read(0, 1, 0), sizeof(uint64_t) * segment.message_places());
      break;
    case 5:
      choose(&segment.stage_words(1, 0), sizeof(StageWords));
      break;
    case 6:
      choose(&segment.stage_words(0, 1), sizeof(StageWords));
      break;
    case 7:
      choose(&segment.header().error, sizeof(uint64_t));
      break;
    case 8:
      choose(&segment.rank(1).history_next,
             sizeof(uint64_t) + sizeof(HistoryPlace) * kHistoryPlaces);
      break;
    default:
      choose(&segment.rank(1).waits, sizeof(WaitPlace) * kWaitPlaces);
  }
  const size_t at = offset_words * sizeof(uint64_t) % size;
  std::memcpy(base + at, &value, std::min(sizeof(value), size - at));
}

struct Buffers {
  Buffers() {
    for (void*& buffer : at) Check(orMalloc(&buffer, kBufferBytes) == orSuccess, "memory");
  }
  void* at[2];
};

occlResult_t Collective(int which, size_t count, occlComm_t comm, const Buffers& buffers,
                        const occlCallOptions_t* options) {
  const void* send = buffers.at[0];
  void* recv = buffers.at[1];
  std::vector<size_t> counts(2, count / 2);
  std::vector<const void*> sends = {send, static_cast<const char*>(send) + count / 2 * 4};
  std::vector<void*> recvs = {recv, static_cast<char*>(recv) + count / 2 * 4};
  switch (which) {
    case 0:
      return occlAllReduce(send, recv, count, occlInt32, occlSum, comm, nullptr, options);
    case 1:
      return occlAllGather(send, recv, count / 2, occlInt32, comm, nullptr, options);
    case 2:
      return occlReduceScatter(send, recv, count / 2, occlInt32, occlSum, comm, nullptr, options);
    case 3:
      return occlBroadcast(send, recv, count, occlInt32, 1, comm, nullptr, options);
    case 4:
      return occlGather(send, recv, count / 2, occlInt32, 0, comm, nullptr, options);
    case 5:
      return occlAllToAll(send, recv, count / 2, occlInt32, comm, nullptr, options);
    case 6:
      return occlAllToAllv(sends.data(), counts.data(), recvs.data(), counts.data(), occlInt32,
                           comm, nullptr, options);
    case 7:
      return occlAllGatherv(send, recvs.data(), counts.data(), occlInt32, comm, nullptr, options);
    case 8:
      return occlBarrier(comm, nullptr, options);
    case 9:
      return occlRecv(recv, count, occlInt32, 1, 0, comm, nullptr, options);
    case 10:
      return occlRecv(recv, count, occlInt32, OCCL_ANY_SOURCE, OCCL_ANY_TAG, comm, nullptr,
                      options);
    default:
      return occlSend(send, count, occlInt32, 1, 0, comm, nullptr, options);
  }
}

void Derive(occlComm_t comm, bool splits) {
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.initTimeout_ms = kTimeout_ms;
  occlComm_t derived = nullptr;
  const int nobody = 0;
  const occlResult_t result =
      splits ? occlCommSplit(comm, 0, 0, &derived, &config)
             : occlCommShrink(comm, &nobody, 0, &derived, &config, OCCL_SHRINK_DEFAULT);
  if (result == occlSuccess) occlCommDestroy(derived);
}

void LookAtHistory(occlComm_t comm) {
  occlOpRecord_t records[64];
  size_t n = 64;
  Check(occlCommGetHistory(comm, 1, records, &n) == occlSuccess && n <= 64, "history");
  for (size_t i = 0; i < n; ++i) {
    Check(memchr(records[i].operation, 0, sizeof(records[i].operation)) != nullptr, "terminated");
    Check(records[i].state >= 0 && records[i].state <= 3, "a state");
  }
}

void Run(const uint8_t* data, size_t size) {
  static const Buffers buffers;
  static constexpr size_t kCounts[] = {0, 2, 6, 8, 1000, 30'000, 200'000};
  Pair pair;
  ControlSegment& segment = reinterpret_cast<Comm*>(pair.comms[0])->segment();
  const int which = data[0] % 14;
  const size_t count = kCounts[data[1] % 7];
  for (data += 2, size -= 2; size >= 11; data += 11, size -= 11) {
    uint64_t value;
    std::memcpy(&value, data + 3, sizeof(value));
    Scribble(segment, data[0], data[1] | data[2] << 8, value);
  }
  if (which >= 12) {
    Derive(pair.comms[0], which == 12);
  } else {
    occlRequest_t request = nullptr;
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    options.request = &request;
    if (Collective(which, count, pair.comms[0], buffers, &options) == occlSuccess) {
      static_cast<void>(occlRequestWait(request, 30'000));
      occlResult_t result = occlSuccess;
      const char* message = "";
      Check(occlRequestGetResult(request, &result, &message) == occlSuccess, "a result");
      Check(PrintableText(message, std::strlen(message)) == message, "text in the message");
      int done = 0;
      Check(occlRequestTest(request, &done) == occlSuccess && done == 1, "the operation ends");
      Check(occlRequestFree(request) == occlSuccess, "free");
    }
  }
  LookAtHistory(pair.comms[0]);
}

}  // namespace
}  // namespace occl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 2) occl::Run(data, size);
  return 0;
}
