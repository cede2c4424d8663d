// The calling thread's group (occlGroupStart to occlGroupEnd).
#ifndef OCCL_CORE_GROUP_H_
#define OCCL_CORE_GROUP_H_

#include "occl/base/status.h"
#include "occl/core/executor.h"

namespace occl {

void StartGroup();
// Issues what the outermost group has collected, or returns the first error inside it.
Status EndGroup();
bool InGroup();
// Keeps a call for the end of the group.
void AddToGroup(Call call);
// None of the group will be issued.
void SpoilGroup(const Status& status);

}  // namespace occl

#endif  // OCCL_CORE_GROUP_H_
