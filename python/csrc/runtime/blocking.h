// Waiting on the host without the interpreter lock.
#ifndef PYTHON_CSRC_RUNTIME_BLOCKING_H_
#define PYTHON_CSRC_RUNTIME_BLOCKING_H_

#include <cstdint>
#include <functional>

#include "openreg/api/openreg.h"

namespace torch_openreg {

// Calls `wait(slice_ms)` until it returns something else than orErrorTimeout, or until `timeout_ms`
// has passed (< 0: never; then the last orErrorTimeout comes back). The interpreter lock is
// released meanwhile if this thread has it. On the main thread, with the lock or without it, a
// pending signal (Ctrl-C) is raised as pybind11::error_already_set between two slices of 100 ms.
orError_t wait_without_gil(std::int64_t timeout_ms,
                           const std::function<orError_t(std::int64_t slice_ms)>& wait);

// After a wait of another kind. `thread_state`: what PyEval_SaveThread gave, so that this takes the
// lock; nullptr: a caller further up has released the lock, and takes it again. While the
// interpreter ends it does not return, but to the main thread. For threads of the program only.
void come_back_from_wait(void* thread_state);

// From an exit handler of the interpreter, without its lock: threads that wait above do not come
// back any more (the interpreter would end them inside of a C++ destructor); those that are on
// their way back get the lock first.
void end_waits();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_BLOCKING_H_
