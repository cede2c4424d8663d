#include "python/csrc/runtime/bindings.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/Stream.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>

#include "python/csrc/runtime/blocking.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/event.h"
#include "python/csrc/runtime/generator.h"
#include "python/csrc/runtime/guard.h"
#include "python/csrc/runtime/hooks.h"
#include "python/csrc/runtime/host_memory.h"
#include "python/csrc/runtime/ipc.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/profiler.h"
#include "python/csrc/runtime/profiler_events.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/runtime/stream_gate.h"
#include "python/csrc/runtime/timer.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

template <typename Handle>
Handle as_handle(std::int64_t value) {
  return reinterpret_cast<Handle>(static_cast<std::intptr_t>(value));
}

std::int64_t as_integer(const void* handle) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(handle));
}

// What torch has to know of the device. Brings nothing to life.
void register_with_torch() {
  register_guard();
  register_hooks();
  register_profiler();
  register_profiler_events();
  register_timer();
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1, host_allocator());
}

orDeviceProp properties(int device) {
  orDeviceProp properties{};
  OR_CHECK(orGetDeviceProperties(&properties, resolve_device(device)));
  return properties;
}

// torch.openreg.Stream, of which every stream that goes to Python is made. It lives for ever.
PyTypeObject* stream_class = nullptr;

void register_stream_class(const py::type& type) {
  auto* given = reinterpret_cast<PyTypeObject*>(type.ptr());
  TORCH_CHECK_TYPE(PyType_IsSubtype(given, THPStreamClass) != 0,
                   "expected a subclass of torch.Stream");
  stream_class = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr()));
}

// What type(...)(stream_id=, device_index=, device_type=) makes, without its parsing of arguments:
// the current stream is asked for in hot paths.
py::object to_python(const OpenregStream& stream) {
  PyObject* made = stream_class->tp_alloc(stream_class, 0);
  if (made == nullptr) {
    throw py::error_already_set();
  }
  auto* fields = reinterpret_cast<THPStream*>(made);
  fields->stream_id = stream.id;
  fields->device_index = stream.device;
  fields->device_type = static_cast<std::int64_t>(c10::DeviceType::PrivateUse1);
  return py::reinterpret_steal<py::object>(made);
}

// Gives what is in flight at the interpreter's exit `timeout_ms` in all to finish, and drops what
// it kept alive while there is an interpreter.
void drain(std::int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  {
    py::gil_scoped_release release;
    for (int device = 0; is_initialized() && device < device_count(); ++device) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      // What it left behind has nobody to be told any more.
      (void)orDeviceSynchronizeTimeout(device, std::max<std::int64_t>(left, 0));
    }
    end_waits();
  }
  reap_finished();
}

void bind_devices(py::module_& m) {
  py::class_<orDeviceProp>(m, "_DeviceProperties")
      .def_property_readonly("name", [](const orDeviceProp& p) { return std::string(p.name); })
      .def_readonly("total_memory", &orDeviceProp::totalGlobalMem)
      .def_readonly("major", &orDeviceProp::major)
      .def_readonly("minor", &orDeviceProp::minor)
      .def_readonly("multi_processor_count", &orDeviceProp::multiProcessorCount)
      .def_readonly("async_engine_count", &orDeviceProp::asyncEngineCount)
      .def_readonly("can_import_memory", &orDeviceProp::canImportMemory)
      .def_property_readonly("uuid",
                             [](const orDeviceProp& p) {
                               return py::bytes(reinterpret_cast<const char*>(p.uuid),
                                                sizeof(p.uuid));
                             })
      .def("__repr__", [](const orDeviceProp& p) {
        return c10::str("_DeviceProperties(name='", p.name, "', major=", p.major,
                        ", minor=", p.minor, ", total_memory=", p.totalGlobalMem >> 20,
                        "MB, multi_processor_count=", p.multiProcessorCount, ")");
      });
  m.def("_init", &ensure_initialized);
  m.def("_is_initialized", &is_initialized);
  m.def("_is_in_bad_fork", &in_bad_fork);
  m.def("_device_count", [] { return static_cast<int>(device_count()); });
  m.def("_get_device", [] { return static_cast<int>(current_device()); });
  m.def("_resolve_device", [](int device) { return static_cast<int>(resolve_device(device)); });
  m.def("_set_device", [](int device) { set_device(resolve_device(device)); });
  m.def("_exchange_device",
        [](int device) { return static_cast<int>(exchange_device(resolve_device(device))); });
  m.def("_get_device_properties", &properties);
  m.def("_can_device_access_peer", [](int device, int peer) {
    int can_access = 0;
    OR_CHECK(orDeviceCanAccessPeer(&can_access, device, peer));
    return can_access != 0;
  });
  m.def("_synchronize", [](int device) { synchronize_device(resolve_device(device)); });
  m.def("_drain", &drain);
}

void bind_streams(py::module_& m) {
  m.def("_register_stream_class", &register_stream_class);
  m.def("_current_stream",
        [](int device) { return to_python(current_stream(resolve_device(device))); });
  m.def("_default_stream",
        [](int device) { return to_python(default_stream(resolve_device(device))); });
  m.def("_set_stream", [](const c10::Stream& stream) {
    const OpenregStream next = OpenregStream::from(stream);
    set_device(next.device);
    set_current_stream(next);
  });
  m.def("_external_stream", [](std::int64_t handle) {
    return to_python(external_stream(as_handle<orStream_t>(handle)));
  });
  m.def("_stream_handle",
        [](const c10::Stream& stream) { return as_integer(OpenregStream::from(stream).handle); });
  m.def("_stream_priority", [](const c10::Stream& stream) {
    int priority = 0;
    OR_CHECK(orStreamGetPriority(OpenregStream::from(stream).handle, &priority));
    return priority;
  });
  m.def("_stream_priority_range", [] {
    int least = 0;
    int greatest = 0;
    OR_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
    return std::make_tuple(least, greatest);
  });
  // Creating and destroying a stream of one's own, for ExternalStream and its tests.
  m.def("_stream_create", [](int device, int priority) {
    ensure_initialized();
    const DeviceScope scope(resolve_device(device));
    orStream_t stream = nullptr;
    OR_CHECK(orStreamCreateWithPriority(&stream, priority));
    return as_integer(stream);
  });
  m.def("_stream_destroy",
        [](std::int64_t stream) { OR_CHECK(orStreamDestroy(as_handle<orStream_t>(stream))); });
}

void bind_events(py::module_& m) {
  m.attr("_EVENT_BLOCKING") = orEventBlockingSync;
  m.attr("_EVENT_DISABLE_TIMING") = orEventDisableTiming;
  m.attr("_EVENT_INTERPROCESS") = orEventInterprocess;
  m.def("_prepare_event", [](int device, unsigned flags) {
    prepare_event(OpenregEvent(resolve_device(device), flags));
  });
  m.def("_prepare_ipc_event", [](const std::string& handle) { prepare_event(open_event(handle)); });
  m.def("_event_elapsed_time", [](std::int64_t start, std::int64_t end) {
    float ms = 0;
    OR_CHECK(orEventElapsedTime(&ms, as_handle<orEvent_t>(start), as_handle<orEvent_t>(end)));
    return ms;
  });
  m.def("_event_ipc_handle", [](std::int64_t event) {
    orIpcEventHandle_t handle;
    OR_CHECK(orIpcGetEventHandle(&handle, as_handle<orEvent_t>(event)));
    return py::bytes(reinterpret_cast<const char*>(handle.reserved), sizeof(handle.reserved));
  });
}

void bind_memory(py::module_& m) {
  m.def("_set_memory_fraction", [](int device, double fraction) {
    ensure_initialized();
    OR_CHECK(orMemSetFraction(resolve_device(device), fraction));
  });
  m.def("_get_memory_fraction", [](int device) {
    ensure_initialized();
    double fraction = 0;
    OR_CHECK(orMemGetFraction(resolve_device(device), &fraction));
    return fraction;
  });
  m.def("_mem_get_info",
        [](int device) { return device_allocator()->getMemoryInfo(resolve_device(device)); });
  m.def("_caching_allocator_alloc", [](std::size_t size, const c10::Stream& stream) {
    ensure_initialized();
    return as_integer(allocate_raw(size, OpenregStream::from(stream)));
  });
  m.def("_caching_allocator_delete", [](std::int64_t ptr) {
    sanitizer::freed(as_handle<void*>(ptr));
    OR_CHECK(orFreeAsync(as_handle<void*>(ptr)));
  });
  m.def("_ipc_collect", [] {
    if (is_initialized()) {
      OR_CHECK(orIpcCollect());
    }
  });
  m.def("_default_generator", [](int device) { return default_generator(resolve_device(device)); });
}

py::dict as_dict(const c10::CachingAllocator::Stat& stat) {
  return py::dict("current"_a = stat.current, "peak"_a = stat.peak, "allocated"_a = stat.allocated,
                  "freed"_a = stat.freed);
}

py::dict as_dict(const c10::CachingAllocator::DurationStat& stat) {
  return py::dict("total"_a = stat.total, "max"_a = stat.max, "min"_a = stat.min,
                  "count"_a = stat.count, "avg"_a = stat.count == 0 ? 0 : stat.total / stat.count);
}

void bind_host_memory(py::module_& m) {
  m.def("_host_memory_stats", [] {
    const at::HostStats stats = host_allocator()->get_stats();
    return py::dict("num_host_alloc"_a = stats.num_host_alloc,
                    "num_host_free"_a = stats.num_host_free,
                    "allocations"_a = as_dict(stats.allocations),
                    "active_requests"_a = as_dict(stats.active_requests),
                    "allocated_bytes"_a = as_dict(stats.allocated_bytes),
                    "active_bytes"_a = as_dict(stats.active_bytes),
                    "host_alloc_time"_a = as_dict(stats.host_alloc_time),
                    "host_free_time"_a = as_dict(stats.host_free_time));
  });
  m.def("_reset_accumulated_host_memory_stats",
        [] { host_allocator()->reset_accumulated_stats(); });
  m.def("_reset_peak_host_memory_stats", [] { host_allocator()->reset_peak_stats(); });
}

void bind_sharing(py::module_& m) {
  py::class_<OpenregEvent>(m, "_CapturedWork").def_property_readonly("handle", [](OpenregEvent& e) {
    return py::bytes(event_handle(e));
  });
  m.def("_capture_device", [](int device) { return capture_device(resolve_device(device)); });
  m.def("_wait_for_captured", [](const std::string& handle, int device) {
    const OpenregEvent event = open_event(handle);
    OR_CHECK(orStreamWaitEvent(current_stream(resolve_device(device)).handle, event.handle()));
  });
  m.def("_share_storage", [](const at::Storage& storage) {
    const SharedStorage shared = share_storage(storage);
    return py::make_tuple(py::bytes(shared.handle), shared.offset_bytes, shared.size_bytes,
                          static_cast<int>(shared.device));
  });
  m.def("_open_storage",
        [](const py::bytes& handle, std::int64_t offset, std::int64_t size, int device) {
          SharedStorage shared;
          shared.handle = static_cast<std::string>(handle);
          shared.offset_bytes = offset;
          shared.size_bytes = size;
          shared.device = resolve_device(device);
          return open_storage(shared);
        });
}

}  // namespace

void bind_runtime(py::module_& module) {
  register_with_torch();
  bind_devices(module);
  bind_streams(module);
  bind_events(module);
  bind_memory(module);
  bind_host_memory(module);
  bind_sharing(module);
  bind_stream_gate(module);
}

}  // namespace torch_openreg
