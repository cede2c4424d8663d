// How DistributedDataParallel measures its phases on this device (torch's c10d::Timer).
#ifndef PYTHON_CSRC_RUNTIME_TIMER_H_
#define PYTHON_CSRC_RUNTIME_TIMER_H_

namespace torch_openreg {

// Called once, when the extension is imported.
void register_timer();

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_TIMER_H_
