// The faults that orSetFaults asks for. While there are none, each place pays one relaxed load.
#ifndef OPENREG_RUNTIME_FAULTS_H_
#define OPENREG_RUNTIME_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "openreg/api/openreg_faults.h"
#include "openreg/runtime/status.h"

namespace openreg {

class Stream;

inline std::atomic<bool> faults_armed{false};

class Faults {
 public:
  static Faults& Get();

  Status Set(const orFaults_t* faults);
  void Counts(uint64_t* slow, uint64_t* failed) const;

  // Before something is put on the stream: perhaps puts a pause there.
  static void BeforeLaunch(Stream* stream) {
    if (faults_armed.load(std::memory_order_relaxed)) [[unlikely]]
      Get().MaybeSlow(stream);
  }
  // An error where the allocation is to fail.
  static Status BeforeAllocation(size_t size) {
    if (faults_armed.load(std::memory_order_relaxed)) [[unlikely]]
      return Get().MaybeFail(size);
    return Status();
  }

 private:
  void MaybeSlow(Stream* stream);
  Status MaybeFail(size_t size);

  mutable std::mutex mutex_;  // guards all below
  orFaults_t faults_ = {};
  uint64_t launches_ = 0, allocations_ = 0;
  uint64_t slow_ = 0, failed_ = 0;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_FAULTS_H_
