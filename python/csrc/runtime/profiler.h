// The device's own track in torch.profiler.
#ifndef PYTHON_CSRC_RUNTIME_PROFILER_H_
#define PYTHON_CSRC_RUNTIME_PROFILER_H_

#include <atomic>

namespace torch_openreg {

// Registers the activity profiler with Kineto. Called once, when the extension is imported; the
// runtime reports activities only while a profile is being taken.
void register_profiler();

namespace detail {
extern std::atomic<bool> profiling;
}  // namespace detail

// True while a profile is being taken.
inline bool profiling() noexcept { return detail::profiling.load(std::memory_order_relaxed); }

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_PROFILER_H_
