// Use of the store from where nothing may wait for it.
#ifndef PYTHON_CSRC_C10D_STORE_ACCESS_H_
#define PYTHON_CSRC_C10D_STORE_ACCESS_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace torch_openreg {

// The TCPStore below the prefixes of `store`, which holds it; nullptr if there is another kind.
const c10d::TCPStore* as_served(const c10::intrusive_ptr<c10d::Store>& store);

// Runs `task` on a thread of its own and waits for it, at most `patience`; a store that does not
// answer keeps the thread after that, and makes the next calls short. Where another thread waits in
// a TCPStore's connection a new one is made, which may be slow; where its server has gone nothing
// runs, and nothing is logged. What `task` throws goes no further. Call without the interpreter
// lock.
void use_store_aside(const c10::intrusive_ptr<c10d::Store>& store,
                     std::chrono::milliseconds patience,
                     std::function<void(const c10::intrusive_ptr<c10d::Store>&)> task);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_STORE_ACCESS_H_
