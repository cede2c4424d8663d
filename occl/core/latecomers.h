// What is said of ranks that others wait for, from what those have written into the segment: it
// works while they hang and after they have died.
#ifndef OCCL_CORE_LATECOMERS_H_
#define OCCL_CORE_LATECOMERS_H_

#include <string>
#include <vector>

#include "occl/core/comm.h"

namespace occl {

// "1 (pid 7) whose last operation is all_reduce #1 (complete), while it waits in ..., 2 ..."
// Thread-safe.
std::string TellOf(Comm& comm, const std::vector<int>& ranks);

// Of an operation that is pending on this rank, as its record describes it: "waiting for rank(s)",
// with TellOf. Thread-safe.
std::string TellAwaited(Comm& comm, const occlOpRecord_t& record);

}  // namespace occl

#endif  // OCCL_CORE_LATECOMERS_H_
