#include "occl/core/history.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "occl/base/futex.h"
#include "occl/bootstrap/messages.h"

namespace occl {
namespace {

constexpr size_t kRecordWords = sizeof(HistoryPlace::words) / sizeof(uint64_t);

// The words that change when an operation starts and ends.
constexpr size_t kStateWord = offsetof(occlOpRecord_t, state) / 8;
constexpr size_t kStartedWord = offsetof(occlOpRecord_t, started_ns) / 8;
constexpr size_t kEndedWord = offsetof(occlOpRecord_t, ended_ns) / 8;
static_assert(offsetof(occlOpRecord_t, state) % 8 == 0 &&
              offsetof(occlOpRecord_t, queued_ns) == offsetof(occlOpRecord_t, state) + 8);

// Each word is written whole, so that a reader sees an old or a new word, and the version tells it
// whether it has seen both.
class WriteGuard {
 public:
  explicit WriteGuard(HistoryPlace* place)
      : place_(*place), version_(place->version.load(std::memory_order_relaxed) | 1) {
    place_.version.store(version_, std::memory_order_relaxed);
  }
  ~WriteGuard() { place_.version.store(version_ + 1, std::memory_order_release); }
  // release: no word is seen before the odd version.
  void Set(size_t word, uint64_t value) {
    place_.words[word].store(value, std::memory_order_release);
  }

 private:
  HistoryPlace& place_;
  const uint64_t version_;
};

bool ReadWords(const HistoryPlace& place, occlOpRecord_t* record) {
  const uint64_t before = place.version.load(std::memory_order_acquire);
  if ((before & 1) != 0) return false;
  uint64_t words[kRecordWords];
  for (size_t i = 0; i < kRecordWords; ++i) {
    // acquire: the version below is loaded after every word.
    words[i] = place.words[i].load(std::memory_order_acquire);
  }
  if (place.version.load(std::memory_order_relaxed) != before) return false;
  std::memcpy(static_cast<void*>(record), words, sizeof(*record));
  record->operation[sizeof(record->operation) - 1] = '\0';
  const std::string printable = PrintableText(record->operation, sizeof(record->operation));
  std::memcpy(record->operation, printable.c_str(), printable.size() + 1);
  record->state = std::clamp(record->state, 0, 3);
  // Values that are no enumerators must not reach an enum.
  int datatype, op;
  std::memcpy(&datatype, &record->datatype, sizeof(datatype));
  std::memcpy(&op, &record->op, sizeof(op));
  if (datatype < 0 || datatype >= occlNumTypes) record->datatype = occlBytes;
  if (op < 0) record->op = occlSum;
  return true;
}

}  // namespace

class History::Lock {
 public:
  explicit Lock(std::atomic_flag* flag) : flag_(*flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) CpuPause();
  }
  ~Lock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

uint64_t History::Add(const occlOpRecord_t& record) {
  static_assert(sizeof(record) == kRecordWords * sizeof(uint64_t));
  Lock lock(&locked_);
  const uint64_t number = block_.history_next.load(std::memory_order_relaxed);
  {
    WriteGuard guard(&block_.history[number % kHistoryPlaces]);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&record);
    for (size_t i = 0; i < kRecordWords; ++i) {
      uint64_t word;
      std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
      guard.Set(i, word);
    }
  }
  block_.history_next.store(number + 1, std::memory_order_release);
  return number;
}

void History::Update(uint64_t number, OpState state, int64_t now_ns) {
  Lock lock(&locked_);
  const uint64_t next = block_.history_next.load(std::memory_order_relaxed);
  if (next - number > kHistoryPlaces) return;
  WriteGuard guard(&block_.history[number % kHistoryPlaces]);
  guard.Set(kStateWord, static_cast<uint64_t>(state));
  guard.Set(state == kStarted ? kStartedWord : kEndedWord, static_cast<uint64_t>(now_ns));
}

std::vector<occlOpRecord_t> History::Read(ControlSegment* segment, int rank, size_t capacity) {
  RankBlock& block = segment->rank(rank);
  const uint64_t next = block.history_next.load(std::memory_order_acquire);
  const uint64_t kept = std::min<uint64_t>({next, kHistoryPlaces, capacity});
  std::vector<occlOpRecord_t> records;
  for (uint64_t number = next - kept; number < next; ++number) {
    occlOpRecord_t record;
    if (ReadWords(block.history[number % kHistoryPlaces], &record)) records.push_back(record);
  }
  return records;
}

}  // namespace occl
