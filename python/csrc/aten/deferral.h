// Operators on a stream that is not empty: queued wherever everything that they write exists, so
// that the host does not wait. One whose results have to be made waits for the stream a little,
// which nearly always is enough and then costs nothing; if not, it is queued, too, with results of
// the sizes that a rehearsal tells, and copies into them. So that what CUDA orders legally does not
// deadlock: a host that waited for a peer's message could not send its own.
//
// An operator is rehearsed on tensors that stand for its own: a small pointwise one by the CPU's
// kernel on ones, any other one by the meta device's kernel.
#ifndef PYTHON_CSRC_ATEN_DEFERRAL_H_
#define PYTHON_CSRC_ATEN_DEFERRAL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// True if `schema` returns nothing but what it writes to (in place, out=, foreach) and draws no
// random numbers: then only a resize can stand in the way of queueing it.
bool may_be_deferred(const c10::FunctionSchema& schema);

// Queues `op` on `stream` with `arguments`, which have to satisfy may_be_deferred. Shapes and
// dtypes are checked first, by a rehearsal: its errors are thrown here. Returns false, and does
// nothing, where there can be none or a result would be resized: then the caller has to wait.
// Errors that depend on data surface at the next synchronise.
bool defer(const c10::OperatorHandle& op, const OpenregStream& stream,
           const torch::jit::Stack& arguments);

// True if `schema` returns new tensors only, writes to nothing and draws no random numbers.
bool makes_tensors(const c10::FunctionSchema& schema);

// For an operator that makes_tensors: its results, not yet computed; nothing if the caller is to
// run it as soon as the stream is empty: it is now, or the operator is not a pointwise one, so that
// the sizes of the CPU's results are not known for certain beforehand.
std::optional<torch::jit::Stack> defer_making(const c10::OperatorHandle& op,
                                              const OpenregStream& stream,
                                              const torch::jit::Stack& arguments);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_DEFERRAL_H_
