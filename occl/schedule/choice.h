// Which algorithm an operation takes: a small measured table, overridden by OCCL_ALGO.
#ifndef OCCL_SCHEDULE_CHOICE_H_
#define OCCL_SCHEDULE_CHOICE_H_

#include <cstdint>

namespace occl::schedule {

enum class Algorithm : uint8_t {
  kOneshot,  // each rank copies its contribution into its slot, the others read it there
  kDirect,   // ranks read each other's buffers
  kStaged,   // as oneshot, a window of the buffers at a time
};

// OCCL_ALGO: "oneshot", "direct" or "staged". False, and *algorithm left alone, for other texts.
bool ParseAlgorithm(const char* text, Algorithm* algorithm);
const char* AlgorithmName(Algorithm algorithm);

struct Query {
  bool reduces_to_all = false;  // all_reduce
  int nranks = 1;
  bool crowded = false;  // more ranks than cores
  uint64_t bytes = 0;    // the largest contribution of any rank
  uint64_t slot_bytes = 0;
  bool mapped = false;                // every rank can read every other rank's buffers
  const Algorithm* forced = nullptr;  // taken where it fits
};

// kDirect only if `mapped`, kOneshot only if `bytes` fits a slot.
Algorithm Choose(const Query& query);

// Whether a reduce of direct data is shared out among the ranks, each of which reduces a part into
// the root's result, rather than done by the root alone: from where the additional signals are
// worth it. The same answer on all ranks.
bool SharesReduce(uint64_t bytes);

}  // namespace occl::schedule

#endif  // OCCL_SCHEDULE_CHOICE_H_
