// torch_openreg._C: the visible list of what the extension binds.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <exception>
#include <string>

#include "python/csrc/aten/bindings.h"
#include "python/csrc/c10d/bindings.h"
#include "python/csrc/runtime/bindings.h"
#include "python/csrc/sanitizer/bindings.h"

namespace torch_openreg {
namespace {

std::string built_for_torch() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

// torch's C++ classes change their virtual tables between minor versions (c10d's did from 2.13 to
// 2.14), so a library built for one crashes in the other: refuse before anything is called.
void check_torch_version() {
  const std::string built = built_for_torch();
  const std::string found =
      pybind11::str(pybind11::module_::import("torch").attr("__version__")).cast<std::string>();
  if (found.rfind(built + ".", 0) != 0) {
    throw pybind11::import_error("torch_openreg was built for torch " + built + ".*, but torch " +
                                 found + " is installed. Install torch==" + built +
                                 ".*, or a torch_openreg built for this torch.");
  }
}

// torch's exceptions become torch's Python classes (OutOfMemoryError, AcceleratorError, ...) in
// every function bound below; all others are left to pybind11.
void translate_torch_errors(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const python_error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace
}  // namespace torch_openreg

PYBIND11_MODULE(_C, module) {
  torch_openreg::check_torch_version();
  pybind11::register_local_exception_translator(torch_openreg::translate_torch_errors);
  module.attr("_TORCH_VERSION") = torch_openreg::built_for_torch();
  torch_openreg::bind_runtime(module);
  torch_openreg::bind_aten(module);
  torch_openreg::bind_c10d(module);
  torch_openreg::bind_faults(module);
  torch_openreg::bind_sanitizer(module);
}
