// What a user may set for a group of ranks: ProcessGroupOCCL.Options.
#ifndef PYTHON_CSRC_C10D_OPTIONS_H_
#define PYTHON_CSRC_C10D_OPTIONS_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "python/csrc/c10d/compat.h"

namespace torch_openreg {

struct OptionsOCCL : c10d::Backend::Options {
  explicit OptionsOCCL(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Options("occl", timeout) {}

  // A full copy. torch's split_group and deepcopy need it.
  c10::intrusive_ptr<c10d::Backend::Options> clone() const TORCH_OPENREG_OPTIONS_CLONE_OVERRIDE {
    return c10::make_intrusive<OptionsOCCL>(*this);
  }

  // The group's own streams run before others.
  bool is_high_priority_stream = false;
  // Refuse inputs that hold NaN, before data moves. Costs a pass over each input and a wait.
  // Default: OCCL_NAN_CHECK (or TORCH_NCCL_NAN_CHECK) in the environment.
  bool nan_check = nan_check_default();

  static bool nan_check_default();
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_OPTIONS_H_
