// Which way the data of an operation takes.
#ifndef OCCL_CORE_ALGORITHMS_H_
#define OCCL_CORE_ALGORITHMS_H_

#include "occl/schedule/choice.h"
#include "occl/transport/control_layout.h"

namespace occl {

struct AlgorithmQuery {
  schedule::Query choice;   // slot_bytes and forced are filled in here
  bool has_factor = false;  // pre-multiplied sum: the inline data is taken
  bool uneven = false;      // sizes are not known to all ranks
};

DataPath ChooseDataPath(AlgorithmQuery query);

}  // namespace occl

#endif  // OCCL_CORE_ALGORITHMS_H_
