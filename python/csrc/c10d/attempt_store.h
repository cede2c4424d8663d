// The store of a job that torchrun restarts.
#ifndef PYTHON_CSRC_C10D_ATTEMPT_STORE_H_
#define PYTHON_CSRC_C10D_ATTEMPT_STORE_H_

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace torch_openreg {

// `store` as this attempt of the job sees it. torchrun's ranks meet in a store of its agent, which
// stays when the ranks are restarted, with the keys of those that have ended: who reads these takes
// a dead process for a rank of today. Any other store is returned as it is; so is that of several
// agents, whose numbers of restarts differ.
c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_ATTEMPT_STORE_H_
