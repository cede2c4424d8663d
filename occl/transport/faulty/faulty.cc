#include "occl/transport/faulty/faulty.h"

#include <mutex>

namespace occl::faulty {
namespace {

constexpr int64_t kLongest_ns = 600'000'000'000;

struct State {
  std::mutex mutex;
  occlFaults_t faults = {};
  uint64_t counts[occlNumFaults] = {};
};
State& TheState() {
  static State* const state = new State;  // outlives every thread
  return *state;
}

// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Add(uint64_t hash, uint64_t value) { return Mix(hash + 0x9e3779b97f4a7c15 + value); }

// In [0, 1).
double Draw(uint64_t seed, const Place& place) {
  uint64_t hash = Mix(seed);
  for (const char c : place.communicator) hash = Add(hash, static_cast<unsigned char>(c));
  hash = Add(hash, static_cast<uint64_t>(place.rank));
  hash = Add(hash, static_cast<uint64_t>(place.peer));
  hash = Add(hash, place.number);
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

}  // namespace

Status SetFaults(const occlFaults_t* faults) {
  if (faults != nullptr) {
    if (faults->structSize != sizeof(occlFaults_t)) {
      return Error(occlInvalidArgument, "occlSetFaults: structSize is %zu, expected %zu",
                   faults->structSize, sizeof(occlFaults_t));
    }
    double sum = 0;
    for (double one : {faults->delay, faults->drop, faults->truncate, faults->reset}) {
      if (!(one >= 0 && one <= 1)) {
        return Error(occlInvalidArgument,
                     "occlSetFaults: a probability is %g, expected one from 0 to 1", one);
      }
      sum += one;
    }
    if (sum > 1) {
      return Error(occlInvalidArgument,
                   "occlSetFaults: the probabilities sum up to %g, expected at most 1", sum);
    }
    if (faults->delay_ns < 0 || faults->delay_ns > kLongest_ns) {
      return Error(occlInvalidArgument, "occlSetFaults: expected delay_ns from 0 to 600 s");
    }
  }
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.faults = faults != nullptr ? *faults : occlFaults_t{};
  for (uint64_t& count : state.counts) count = 0;
  const occlFaults_t& now = state.faults;
  armed.store(now.delay + now.drop + now.truncate + now.reset > 0, std::memory_order_relaxed);
  return Status();
}

void GetCounts(uint64_t counts[occlNumFaults]) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  for (int i = 0; i < occlNumFaults; ++i) counts[i] = state.counts[i];
}

Decision DecideArmed(const Place& place) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  const occlFaults_t& faults = state.faults;
  double left = Draw(faults.seed, place);
  const struct {
    double probability;
    Fault fault;
    int count;
  } kinds[] = {{faults.delay, Fault::kDelay, occlFaultDelay},
               {faults.drop, Fault::kDrop, occlFaultDrop},
               {faults.truncate, Fault::kTruncate, occlFaultTruncate},
               {faults.reset, Fault::kReset, occlFaultReset}};
  for (const auto& kind : kinds) {
    if (left < kind.probability) {
      ++state.counts[kind.count];
      return {kind.fault, faults.delay_ns, faults.seed};
    }
    left -= kind.probability;
  }
  return {};
}

}  // namespace occl::faulty
