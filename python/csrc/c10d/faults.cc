// Faults on request, for torch_openreg.testing.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>

#include "occl/api/occl_faults.h"
#include "openreg/api/openreg_faults.h"
#include "python/csrc/c10d/bindings.h"
#include "python/csrc/runtime/status.h"

namespace py = pybind11;

namespace torch_openreg {
namespace {

void check_available(bool available, const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(available, "torch_openreg.testing.faults: ", what,
                              " of this build injects no faults");
}

void set_collective_faults(std::uint64_t seed, double delay, double delay_s, double drop,
                           double truncate, double reset) {
  check_available(occlSetFaults != nullptr, "the collective library");
  const occlFaults_t faults{
      sizeof(faults), seed, delay, static_cast<std::int64_t>(delay_s * 1e9), drop, truncate, reset};
  TORCH_CHECK_VALUE(occlSetFaults(&faults) == occlSuccess, occlGetLastError(nullptr));
}

void set_device_faults(std::uint64_t seed, double slow_stream, double slow_stream_s,
                       double failing_allocation) {
  check_available(orSetFaults != nullptr, "the runtime");
  const orFaults_t faults{sizeof(faults), seed, slow_stream,
                          static_cast<std::int64_t>(slow_stream_s * 1e9), failing_allocation};
  TORCH_CHECK_VALUE(orSetFaults(&faults) == orSuccess, orGetLastErrorMessage());
}

std::map<std::string, std::uint64_t> fault_counts() {
  std::map<std::string, std::uint64_t> counts;
  if (occlGetFaultCounts != nullptr) {
    std::uint64_t of_collectives[occlNumFaults] = {};
    TORCH_CHECK(occlGetFaultCounts(of_collectives) == occlSuccess, occlGetLastError(nullptr));
    counts["delay"] = of_collectives[occlFaultDelay];
    counts["drop"] = of_collectives[occlFaultDrop];
    counts["truncate"] = of_collectives[occlFaultTruncate];
    counts["reset"] = of_collectives[occlFaultReset];
  }
  if (orGetFaultCounts != nullptr) {
    OR_CHECK(orGetFaultCounts(&counts["slow_stream"], &counts["failing_allocation"]));
  }
  return counts;
}

}  // namespace

void bind_faults(py::module_& module) {
  module.def("_set_collective_faults", &set_collective_faults, py::arg("seed"), py::kw_only(),
             py::arg("delay"), py::arg("delay_s"), py::arg("drop"), py::arg("truncate"),
             py::arg("reset"));
  module.def("_set_device_faults", &set_device_faults, py::arg("seed"), py::kw_only(),
             py::arg("slow_stream"), py::arg("slow_stream_s"), py::arg("failing_allocation"));
  module.def("_fault_counts", &fault_counts);
}

}  // namespace torch_openreg
