#include "python/csrc/sanitizer/bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "python/csrc/sanitizer/host_access.h"
#include "python/csrc/sanitizer/places.h"
#include "python/csrc/sanitizer/report.h"
#include "python/csrc/sanitizer/session.h"
#include "python/csrc/sanitizer/switch.h"
#include "python/csrc/sanitizer/work.h"

namespace torch_openreg {

namespace py = pybind11;

void bind_sanitizer(py::module_& module) {
  module.def(
      "_sanitizer_enable",
      [](py::object handler, std::vector<std::pair<std::string, bool>> paths) {
        if (!sanitizer::enabled()) {
          sanitizer::engine().forget();  // what was freed meanwhile, above all
        }
        sanitizer::set_handler(std::move(handler));
        sanitizer::set_skipped_paths(std::move(paths));
        sanitizer::detail::is_on.store(true, std::memory_order_relaxed);
      },
      py::arg("handler"), py::arg("paths"));
  module.def("_sanitizer_disable", [] {
    sanitizer::detail::is_on.store(false, std::memory_order_relaxed);
    sanitizer::unwatch_host();
  });
  module.def("_sanitizer_enabled", &sanitizer::enabled);
  module.def("_sanitizer_forget_reported", &sanitizer::forget_reported);
  module.def("_sanitizer_note_backward", &sanitizer::note_backward);
  module.def("_sanitizer_host_saw_work", [](const c10::intrusive_ptr<c10d::Work>& work) {
    sanitizer::host_saw_work(work.get());
  });
  module.def(
      "_sanitizer_host_reads",
      [](const at::Tensor& tensor, const std::string& name) {
        static auto* const names = new std::set<std::string>;  // under the interpreter lock
        sanitizer::host_reads(names->insert(name).first->c_str(), tensor);
      },
      py::arg("tensor"), py::arg("name"));
}

}  // namespace torch_openreg
