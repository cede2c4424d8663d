// Whether the sanitizer is on.
//
// docs/sanitizer.md says what it finds; engine/ decides; this folder knows torch and Python. Each
// hook costs one relaxed load and a branch while the sanitizer is off. Hooks that can find a fault
// are called before anything happens on the device; they throw
// torch.openreg.sanitizer.SanitizerError where the mode says so, and may take the interpreter lock.
// The others never throw for a fault.
#ifndef PYTHON_CSRC_SANITIZER_SWITCH_H_
#define PYTHON_CSRC_SANITIZER_SWITCH_H_

#include <atomic>

namespace torch_openreg::sanitizer {

namespace detail {
extern std::atomic<bool> is_on;
}  // namespace detail

inline bool enabled() { return detail::is_on.load(std::memory_order_relaxed); }

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_SWITCH_H_
