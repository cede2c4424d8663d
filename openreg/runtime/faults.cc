#include "openreg/runtime/faults.h"

#include <time.h>

#include "openreg/runtime/capi_error.h"
#include "openreg/runtime/stream.h"

namespace openreg {
namespace {

constexpr int64_t kLongest_ns = 10'000'000'000;

// Whether the n-th event of a kind is hit: splitmix64 of what it depends on (Steele, Lea, Flood,
// "Fast splittable pseudorandom number generators", 2014).
bool Hit(double probability, uint64_t seed, uint64_t kind, uint64_t number) {
  uint64_t x = seed + 0x9e3779b97f4a7c15 * (2 * number + kind + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-53 < probability;
}

void Pause(void* nanoseconds) {
  const auto ns = static_cast<int64_t>(reinterpret_cast<intptr_t>(nanoseconds));
  const timespec pause = {ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&pause, nullptr);
}

bool IsProbability(double value) { return value >= 0 && value <= 1; }

}  // namespace

Faults& Faults::Get() {
  static Faults* const faults = new Faults;  // outlives every thread
  return *faults;
}

Status Faults::Set(const orFaults_t* faults) {
  if (faults != nullptr) {
    if (faults->structSize != sizeof(orFaults_t)) {
      return InvalidValue(Format("orSetFaults: structSize is %zu, expected %zu", faults->structSize,
                                 sizeof(orFaults_t)));
    }
    if (!IsProbability(faults->slowStream) || !IsProbability(faults->failingAllocation)) {
      return InvalidValue("orSetFaults: expected probabilities from 0 to 1");
    }
    if (faults->slowStream_ns < 0 || faults->slowStream_ns > kLongest_ns) {
      return InvalidValue("orSetFaults: expected slowStream_ns from 0 to 10 s");
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  faults_ = faults != nullptr ? *faults : orFaults_t{};
  launches_ = allocations_ = slow_ = failed_ = 0;
  faults_armed.store(faults_.slowStream > 0 || faults_.failingAllocation > 0,
                     std::memory_order_relaxed);
  return Status();
}

void Faults::Counts(uint64_t* slow, uint64_t* failed) const {
  std::lock_guard<std::mutex> lock(mutex_);
  *slow = slow_;
  *failed = failed_;
}

void Faults::MaybeSlow(Stream* stream) {
  if (stream->HeldByMe()) return;  // part of an operation that has had its turn
  int64_t pause_ns = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Hit(faults_.slowStream, faults_.seed, 0, launches_++)) {
      pause_ns = faults_.slowStream_ns;
      ++slow_;
    }
  }
  // A stream that takes no more work says so to the launch that follows.
  if (pause_ns > 0) {
    static_cast<void>(
        stream->Queue(Work::HostFunction(Pause, reinterpret_cast<void*>(intptr_t{pause_ns}))));
  }
}

Status Faults::MaybeFail(size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!Hit(faults_.failingAllocation, faults_.seed, 1, allocations_++)) return Status();
  ++failed_;
  return Status(orErrorMemoryAllocation,
                Format("an allocation of %zu bytes fails on request (orSetFaults, seed %llu)", size,
                       static_cast<unsigned long long>(faults_.seed)));
}

}  // namespace openreg

using openreg::EnterWithoutDevice;
using openreg::Faults;
using openreg::Status;

extern "C" {

orError_t orSetFaults(const orFaults_t* faults) {
  return EnterWithoutDevice([&] { return Faults::Get().Set(faults); });
}

orError_t orGetFaultCounts(uint64_t* slowStreams, uint64_t* failedAllocations) {
  return EnterWithoutDevice([&]() -> Status {
    OPENREG_CHECK_OUT(slowStreams);
    OPENREG_CHECK_OUT(failedAllocations);
    Faults::Get().Counts(slowStreams, failedAllocations);
    return Status();
  });
}

}  // extern "C"
