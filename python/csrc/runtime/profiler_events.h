// Device times for torch's older profiler, torch.autograd.profiler.profile(use_device="openreg").
#ifndef PYTHON_CSRC_RUNTIME_PROFILER_EVENTS_H_
#define PYTHON_CSRC_RUNTIME_PROFILER_EVENTS_H_

namespace torch_openreg {

// Gives torch the means to time operators by events on the device. Called once, when the extension
// is imported.
void register_profiler_events();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_PROFILER_EVENTS_H_
