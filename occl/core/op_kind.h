// The operations, by the names that errors, logs and the history show.
#ifndef OCCL_CORE_OP_KIND_H_
#define OCCL_CORE_OP_KIND_H_

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

// Static storage; "unknown operation" for a value that is none (such values come from peers).
constexpr const char* OpName(int kind) {
  constexpr const char* kNames[] = {"all_reduce",     "broadcast", "reduce",  "all_gather",
                                    "reduce_scatter", "gather",    "scatter", "all_to_all",
                                    "barrier",        "send",      "recv",    "group"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<int>(OpKind::kNumKinds));
  return kind >= 0 && kind < static_cast<int>(OpKind::kNumKinds) ? kNames[kind]
                                                                 : "unknown operation";
}
constexpr const char* OpName(OpKind kind) { return OpName(static_cast<int>(kind)); }

}  // namespace occl

#endif  // OCCL_CORE_OP_KIND_H_
