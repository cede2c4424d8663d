#include "python/csrc/runtime/stream_gate.h"

#include <torch/csrc/utils/pybind.h>

#include <condition_variable>
#include <mutex>

#include "python/csrc/runtime/deferred.h"

namespace torch_openreg {

struct StreamGate::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;  // guarded by mutex
};

StreamGate::StreamGate(const OpenregStream& stream, std::chrono::milliseconds deadline)
    : state_(std::make_shared<State>()) {
  class Task final : public DeferredTask {
   public:
    Task(std::shared_ptr<State> state, std::chrono::milliseconds deadline)
        : state_(std::move(state)), deadline_(deadline) {}
    void run() override {
      std::unique_lock<std::mutex> lock(state_->mutex);
      TORCH_CHECK(state_->changed.wait_for(lock, deadline_, [&] { return state_->is_open; }),
                  "nobody opened the gate within ", deadline_.count(), " ms");
    }

   private:
    std::shared_ptr<State> state_;
    std::chrono::milliseconds deadline_;
  };
  enqueue("gate", stream, std::make_unique<Task>(state_, deadline));
}

void StreamGate::open() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->is_open = true;
  }
  state_->changed.notify_all();
}

void bind_stream_gate(pybind11::module_& module) {
  pybind11::class_<StreamGate>(module, "_StreamGate")
      .def(pybind11::init([](const c10::Stream& stream, double deadline_s) {
             const auto deadline =
                 std::chrono::milliseconds(static_cast<std::int64_t>(deadline_s * 1000));
             return std::make_unique<StreamGate>(OpenregStream::from(stream), deadline);
           }),
           pybind11::arg("stream"), pybind11::arg("deadline_s"))
      .def("open", &StreamGate::open);
}

}  // namespace torch_openreg
