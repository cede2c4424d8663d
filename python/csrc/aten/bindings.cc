#include "python/csrc/aten/bindings.h"

#include "python/csrc/aten/allocation_switch.h"
#include "python/csrc/aten/fallback.h"

namespace torch_openreg {

void bind_aten(pybind11::module_& /*module*/) {
  install_allocation_switch();
  register_preferred_fallbacks();
}

}  // namespace torch_openreg
