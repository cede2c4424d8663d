// The operations, by the names that errors, logs and the history show.
#ifndef OCCL_CORE_OP_KIND_H_
#define OCCL_CORE_OP_KIND_H_

#include <cstddef>
#include <cstdint>

namespace occl {

enum class OpKind : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kRecv,
  kGroup,
  kNumKinds
};

inline constexpr size_t kOpNameBytes = 24;
inline constexpr char kOpNames[][kOpNameBytes] = {
    "all_reduce", "broadcast", "reduce",           "all_gather", "reduce_scatter",
    "gather",     "scatter",   "all_to_all",       "barrier",    "send",
    "recv",       "group",     "unknown operation"};
static_assert(sizeof(kOpNames) / kOpNameBytes == static_cast<size_t>(OpKind::kNumKinds) + 1);

// Static storage of kOpNameBytes; "unknown operation" for a value that is none (such values come
// from peers).
constexpr const char* OpName(int kind) {
  constexpr int kUnknown = static_cast<int>(OpKind::kNumKinds);
  return kOpNames[kind >= 0 && kind < kUnknown ? kind : kUnknown];
}
constexpr const char* OpName(OpKind kind) { return OpName(static_cast<int>(kind)); }

}  // namespace occl

#endif  // OCCL_CORE_OP_KIND_H_
