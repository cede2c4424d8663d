// torch_openreg._C: the visible list of what the extension binds.
#include <pybind11/pybind11.h>
#include <torch/version.h>

#include <string>

#include "python/csrc/aten/bindings.h"
#include "python/csrc/c10d/bindings.h"
#include "python/csrc/runtime/bindings.h"

namespace torch_openreg {
namespace {

// torch's C++ classes change their virtual tables between minor versions (c10d's did from 2.13 to
// 2.14), so a library built for one crashes in the other: refuse before anything is called.
void check_torch_version() {
  const std::string built =
      std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  const std::string found =
      pybind11::module_::import("torch").attr("__version__").attr("__str__")().cast<std::string>();
  if (found.rfind(built + ".", 0) != 0) {
    throw pybind11::import_error("torch_openreg was built for torch " + built + ".*, but torch " +
                                 found + " is installed. Install torch==" + built +
                                 ".*, or a torch_openreg built for this torch.");
  }
}

}  // namespace
}  // namespace torch_openreg

PYBIND11_MODULE(_C, module) {
  torch_openreg::check_torch_version();
  torch_openreg::bind_runtime(module);
  torch_openreg::bind_aten(module);
  torch_openreg::bind_c10d(module);
}
