// Which way the data of an operation takes: a small table by size, overridden by OCCL_ALGO.
#ifndef OCCL_CORE_ALGORITHMS_H_
#define OCCL_CORE_ALGORITHMS_H_

#include <cstdint>

#include "occl/transport/control_layout.h"

namespace occl {

struct AlgorithmQuery {
  int nranks = 1;
  bool direct = false;      // every rank has mapped every arena
  bool has_factor = false;  // pre-multiplied sum: the inline data is taken
  bool uneven = false;      // sizes are not known to all ranks
  uint64_t contribution_bytes = 0;
};

DataPath ChooseDataPath(const AlgorithmQuery& query);

}  // namespace occl

#endif  // OCCL_CORE_ALGORITHMS_H_
