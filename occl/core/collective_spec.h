// What a collective is, once its arguments have been checked: who contributes what, who takes what.
// Every collective but the large all_reduce is one exchange: each rank offers its contribution,
// agrees with those it exchanges with, and copies or reduces from theirs.
#ifndef OCCL_CORE_COLLECTIVE_SPEC_H_
#define OCCL_CORE_COLLECTIVE_SPEC_H_

#include <cstdint>
#include <vector>

#include "occl/api/occl.h"
#include "occl/core/op_kind.h"
#include "occl/reduce/reduce.h"

namespace occl {

enum class Flow : uint8_t { kAllToAll, kFromRoot, kToRoot };

// A range in the kernel range of this rank's device.
struct Part {
  unsigned char* data = nullptr;
  uint64_t count = 0;  // elements
};

struct CollectiveSpec {
  OpKind kind = OpKind::kBarrier;
  occlDataType_t datatype = occlBytes;
  uint32_t element_bytes = 1;
  int op = occlSum;  // occlRedOp_t; occlNumOps: pre-multiplied sum
  int root = -1;
  Flow flow = Flow::kAllToAll;
  bool part_per_rank = false;  // the contribution has a part for each rank, else one for all
  bool uneven = false;         // parts have their own counts and addresses
  bool reduces = false;
  uint64_t count = 0;  // elements of a part; of all parts alike unless uneven

  unsigned char* send = nullptr;  // even parts: the first one
  unsigned char* recv = nullptr;  // even parts: where the part of rank 0 goes (stride `count`
                                  // unless there is only one to take)
  std::vector<Part> send_parts;   // uneven: for rank r (or one for all)
  std::vector<Part> recv_parts;   // uneven: from rank r (or one: the result)

  reduce::Plan plan;
  double scale[2] = {1, 0};  // pre-multiplied sum: this rank's factor

  bool Exchanges(int rank, int peer) const {
    return flow == Flow::kAllToAll || rank == root || peer == root;
  }
  bool Reads(int rank, int peer) const {
    return flow == Flow::kAllToAll || (flow == Flow::kFromRoot ? peer == root : rank == root);
  }
  // Takes one part only: all reductions, and what comes from the root.
  bool TakesOne() const { return reduces || flow == Flow::kFromRoot; }
  Part SendPart(int peer) const {
    if (uneven) return send_parts[part_per_rank ? peer : 0];
    return {part_per_rank ? send + uint64_t(peer) * count * element_bytes : send, count};
  }
  Part RecvPart(int peer) const {
    if (uneven) return recv_parts[TakesOne() ? 0 : peer];
    return {TakesOne() ? recv : recv + uint64_t(peer) * count * element_bytes, count};
  }
};

}  // namespace occl

#endif  // OCCL_CORE_COLLECTIVE_SPEC_H_
