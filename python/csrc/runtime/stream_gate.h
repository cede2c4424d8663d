// A gate in a stream: work that waits until somebody opens it. For tests of ordering, which must
// not depend on how long something takes.
#ifndef PYTHON_CSRC_RUNTIME_STREAM_GATE_H_
#define PYTHON_CSRC_RUNTIME_STREAM_GATE_H_

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>

#include "python/csrc/runtime/stream.h"

namespace torch_openreg {

// Queues work on `stream` that ends when open() is called, when the gate is destroyed, or at the
// deadline, which leaves orErrorLaunchFailure on the stream: a forgotten gate never hangs.
class StreamGate {
 public:
  StreamGate(const OpenregStream& stream, std::chrono::milliseconds deadline);
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  void open();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

void bind_stream_gate(pybind11::module_& module);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_STREAM_GATE_H_
