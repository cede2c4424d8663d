// Ranks of a communicator for tests: as threads of this process, or as processes. Uses the public
// headers only, so that it runs against any implementation of occl.h.
#ifndef OCCL_CONFORMANCE_RANKS_H_
#define OCCL_CONFORMANCE_RANKS_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "occl/api/occl.h"
#include "openreg/api/openreg.h"

namespace occl_conformance {

// A store for ranks that are threads of one process.
class MemoryStore {
 public:
  occlStore_t AsStore();

 private:
  static occlResult_t Set(void* context, const char* key, const void* value, size_t size);
  static occlResult_t Get(void* context, const char* key, void* value, size_t capacity,
                          size_t* size, int64_t timeout_ms);
  static occlResult_t Add(void* context, const char* key, int64_t delta, int64_t* sum);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> numbers_;
};

// A store for ranks that are processes, forked after it was made: in memory that they share.
class SharedStore {
 public:
  SharedStore();
  ~SharedStore();
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;
  occlStore_t AsStore();
  // Marks by which ranks wait for each other.
  void Tell(const std::string& mark);
  bool Await(const std::string& mark, int64_t timeout_ms = 60'000);

 private:
  struct Content;
  static occlResult_t Set(void* context, const char* key, const void* value, size_t size);
  static occlResult_t Get(void* context, const char* key, void* value, size_t capacity,
                          size_t* size, int64_t timeout_ms);
  static occlResult_t Add(void* context, const char* key, int64_t delta, int64_t* sum);

  Content* content_;
};

struct Rank {
  int rank;
  int nranks;
  occlComm_t comm;
  orStream_t stream;
};

struct RankOptions {
  int64_t timeout_ms = 20'000;
  bool own_devices = true;  // rank r uses device r % count, else all use device 0
  bool early = false;       // init does not wait for the other ranks
};

// Runs body in nranks threads, each with a communicator and a stream of its own, which are
// destroyed afterwards. A failure to set up is reported as a failure of the test.
void RunThreads(int nranks, const std::function<void(const Rank&)>& body,
                const RankOptions& options = {});

// Device memory that the test fills and reads through the kernel range.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size_bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* device() const { return device_; }
  unsigned char* device_bytes() const { return static_cast<unsigned char*>(device_); }
  // Where the host of the test finds the bytes, once no work on them is pending.
  unsigned char* host() const { return host_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(host_);
  }

 private:
  void* device_ = nullptr;
  unsigned char* host_ = nullptr;
};

// Child processes of a test whose parent never uses the device.
class RankProcesses {
 public:
  static constexpr int kNoUniqueId = 99;

  // Each child runs body and exits with what it returns, with kNoUniqueId where the parent got
  // none.
  RankProcesses(int nranks, const std::function<int(int rank, const occlUniqueId& id)>& body);
  ~RankProcesses();  // kills what is left

  pid_t pid(int rank) const { return pids_[rank]; }
  // The child's exit status, -1 if it was killed by a signal, -2 if it does not end in time.
  int Wait(int rank, int64_t timeout_ms = 30'000);
  void Kill(int rank, int signal);

 private:
  std::vector<pid_t> pids_;
};

int64_t NowMs();

}  // namespace occl_conformance

#endif  // OCCL_CONFORMANCE_RANKS_H_
