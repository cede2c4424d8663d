// The part of a store that belongs to one attempt of a job, and to one group.
#ifndef PYTHON_CSRC_C10D_GROUP_STORE_H_
#define PYTHON_CSRC_C10D_GROUP_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace torch_openreg {

// `store` as this attempt of the job sees it. torchrun's ranks meet in a store of its agent, which
// stays when the ranks are restarted, with the keys of those that have ended: who reads these takes
// a dead process for a rank of today. Any other store is returned as it is; so is that of several
// agents, whose numbers of restarts differ.
c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store);

// `store` as the group of the global ranks `members`, in whatever order, sees it; empty: as it is.
c10::intrusive_ptr<c10d::Store> store_of_members(c10::intrusive_ptr<c10d::Store> store,
                                                 std::vector<std::uint64_t> members);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_GROUP_STORE_H_
