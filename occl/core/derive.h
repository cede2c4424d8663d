// New communicators out of an existing one, without a store: its ranks meet in the control segment
// they share.
#ifndef OCCL_CORE_DERIVE_H_
#define OCCL_CORE_DERIVE_H_

#include <vector>

#include "occl/base/status.h"
#include "occl/core/comm.h"

namespace occl {

// Contracts: occlCommSplit and occlCommShrink. `settings`: name, device and timeouts of the new
// communicator; its ranks are filled in. *created stays empty for OCCL_SPLIT_NOCOLOR.
Status SplitComm(Comm& parent, int color, int key, CommSettings settings, Ref<Comm>* created);
Status ShrinkComm(Comm& parent, const std::vector<bool>& excluded, CommSettings settings,
                  Ref<Comm>* created);

}  // namespace occl

#endif  // OCCL_CORE_DERIVE_H_
