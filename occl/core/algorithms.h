// Which way the data of an operation takes.
#ifndef OCCL_CORE_ALGORITHMS_H_
#define OCCL_CORE_ALGORITHMS_H_

#include "occl/reduce/copy.h"
#include "occl/schedule/choice.h"
#include "occl/transport/control_layout.h"

namespace occl {

// Whether even data of so many bytes goes in the entry itself. has_factor: a pre-multiplied sum,
// whose factor takes that place.
bool GoesInline(uint64_t bytes, bool has_factor);

struct AlgorithmQuery {
  schedule::Query choice;  // slot_bytes and forced are filled in here
  bool uneven = false;     // sizes are not known to all ranks
};

// For data that does not go inline.
DataPath ChooseDataPath(AlgorithmQuery query);

// False if the arenas are not mapped, or OCCL_ALGO says staged.
bool UsesDirectPath(bool mapped);

// How to copy a block of `total_bytes` that are copied in one go: past the caches if they would
// only be swept by it.
reduce::CopyMode CopyModeFor(uint64_t total_bytes);

}  // namespace occl

#endif  // OCCL_CORE_ALGORITHMS_H_
