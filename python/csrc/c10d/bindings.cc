#include "python/csrc/c10d/bindings.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>

#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/c10d/options.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/symmetric_allocator.h"

namespace py = pybind11;

namespace torch_openreg {
namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;
using Group = ProcessGroupOCCL;

template <typename Class>
void bind_options(Class& group) {
  py::class_<OptionsOCCL, c10::intrusive_ptr<OptionsOCCL>, c10d::Backend::Options>(
      group, "Options", "Options of a group with backend 'occl'.")
      .def(py::init([](bool is_high_priority_stream) {
             auto options = c10::make_intrusive<OptionsOCCL>();
             options->is_high_priority_stream = is_high_priority_stream;
             return options;
           }),
           py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &OptionsOCCL::is_high_priority_stream)
      .def_readwrite("nan_check", &OptionsOCCL::nan_check)
      .def("clone", [](const OptionsOCCL& self) { return c10::make_intrusive<OptionsOCCL>(self); })
      .def("__copy__",
           [](const OptionsOCCL& self) { return c10::make_intrusive<OptionsOCCL>(self); })
      .def(
          "__deepcopy__",
          [](const OptionsOCCL& self, const py::dict& /*memo*/) {
            return c10::make_intrusive<OptionsOCCL>(self);
          },
          py::arg("memo"));
}

template <typename Class>
void bind_group_methods(Class& group) {
  group
      .def_property_readonly(
          "options",
          [](Group& self) {
            return c10::static_intrusive_pointer_cast<OptionsOCCL>(self.getBackendOptions());
          })
      .def_property_readonly("group_name", [](const Group& self) { return self.getGroupUid(); })
      .def_property_readonly("bound_device_id", &Group::getBoundDeviceId)
      .def("get_error", &Group::getError, NoGil())
      .def("split", &Group::split, py::arg("store"), py::arg("ranks"), py::arg("opts"), NoGil())
      .def(
          "perform_nocolor_split", [](Group& /*self*/, const at::Device& /*device*/) {},
          py::arg("device"),
          "Called by torch on ranks that are not part of a new group. Nothing to do: the members "
          "of new_group meet in the store.")
      .def("_find_dead", &Group::find_dead, py::arg("ranks"), NoGil())
      .def("_set_default_timeout", &Group::setTimeout, py::arg("timeout"), NoGil())
      .def(
          "_register_on_completion_hook",
          [](Group& self, py::function hook) {
            // Held and called under the interpreter lock only.
            std::shared_ptr<py::function> held(new py::function(std::move(hook)),
                                               [](py::function* function) {
                                                 py::gil_scoped_acquire gil;
                                                 delete function;
                                               });
            self.registerOnCompletionHook([held](const std::shared_ptr<c10d::WorkInfo>& info) {
              py::gil_scoped_acquire gil;
              (*held)(py::cast(info));
            });
          },
          py::arg("hook"))
      .def("_wait_for_pending_works", &Group::waitForPendingWorks, NoGil())
      .def("_enable_collectives_timing", &Group::enableCollectivesTiming);
}

}  // namespace

void bind_c10d(py::module_& module) {
  // The bases are registered there.
  py::module_::import("torch._C._distributed_c10d");
  py::class_<Group, c10::intrusive_ptr<Group>, c10d::Backend> group(
      module, "ProcessGroupOCCL", "The torch.distributed backend 'occl' for openreg devices.");
  bind_options(group);
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout) {
             return c10::make_intrusive<Group>(store, rank, size,
                                               c10::make_intrusive<OptionsOCCL>(timeout));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout") = std::chrono::milliseconds(kBackendDefaultTimeout), NoGil())
      .def(py::init<c10::intrusive_ptr<c10d::Store>, int, int, c10::intrusive_ptr<OptionsOCCL>>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), NoGil());
  bind_group_methods(group);
  // What Backend.mem_allocator returns: torch binds the class in its CUDA builds only.
  if (py::detail::get_type_info(typeid(c10::Allocator)) == nullptr) {
    py::class_<c10::Allocator, std::shared_ptr<c10::Allocator>>(module, "_Allocator");
  }
  register_symmetric_memory();

  module.def("_shutdown_process_groups", &Group::shutdown_all, py::arg("drain"), NoGil());
  module.def("_log_no_failures", &log_no_failures);
  module.def(
      "_dump_flight_recorder",
      [](bool only_active) {
        std::string bytes;
        {
          py::gil_scoped_release no_gil;
          bytes = FlightRecorder::get().pickled(only_active);
        }
        return py::bytes(bytes);
      },
      py::arg("only_active") = false);
  module.def("_reset_flight_recorder", [] { FlightRecorder::get().reset(); });
}

}  // namespace torch_openreg
