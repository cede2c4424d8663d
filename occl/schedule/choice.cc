#include "occl/schedule/choice.h"

#include <cstring>

namespace occl::schedule {
namespace {

constexpr const char* kNames[] = {"oneshot", "direct", "staged"};

// Up to `bytes`, a copy into the slot costs less than the signals of the direct way. In an
// all_reduce, oneshot reads nranks contributions on every rank, so its range shrinks with them;
// where ranks share cores, each signal is a context switch and its range grows.
struct Row {
  bool reduces_to_all;
  bool crowded;
  int max_ranks;
  uint64_t bytes;
};
constexpr Row kOneshotUpTo[] = {
    {true, false, 512, 2 * 1024},  {true, true, 4, 16 * 1024},   {true, true, 512, 8 * 1024},
    {false, false, 512, 4 * 1024}, {false, true, 512, 8 * 1024},
};

uint64_t OneshotLimit(const Query& query) {
  for (const Row& row : kOneshotUpTo) {
    if (row.reduces_to_all == query.reduces_to_all && row.crowded == query.crowded &&
        query.nranks <= row.max_ranks) {
      return row.bytes;
    }
  }
  return 0;
}

}  // namespace

bool ParseAlgorithm(const char* text, Algorithm* algorithm) {
  for (int i = 0; i < 3; ++i) {
    if (std::strcmp(text, kNames[i]) == 0) {
      *algorithm = static_cast<Algorithm>(i);
      return true;
    }
  }
  return false;
}

const char* AlgorithmName(Algorithm algorithm) { return kNames[static_cast<int>(algorithm)]; }

Algorithm Choose(const Query& query) {
  const bool fits = query.bytes <= query.slot_bytes;
  if (query.forced != nullptr) {
    if (*query.forced == Algorithm::kStaged) return Algorithm::kStaged;
    if (*query.forced == Algorithm::kDirect && query.mapped) return Algorithm::kDirect;
    if (*query.forced == Algorithm::kOneshot && fits) return Algorithm::kOneshot;
  }
  if (!query.mapped) return fits ? Algorithm::kOneshot : Algorithm::kStaged;
  return fits && query.bytes <= OneshotLimit(query) ? Algorithm::kOneshot : Algorithm::kDirect;
}

bool SharesReduce(uint64_t bytes) { return bytes >= 32 * 1024; }

}  // namespace occl::schedule
