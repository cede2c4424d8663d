#include "python/csrc/sanitizer/report.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "python/csrc/sanitizer/places.h"
#include "python/csrc/sanitizer/session.h"

namespace py = pybind11;

namespace torch_openreg::sanitizer {
namespace {

using Key = std::tuple<Finding::Kind, Place, Place, std::string, std::string>;

struct Reported {
  std::mutex mutex;
  std::set<Key> keys;
  PyObject* handler = nullptr;  // guarded by the interpreter lock
};

Reported& reported() {
  static auto* const instance = new Reported;  // leaked: used at exit
  return *instance;
}

const char* kind_name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kRace:
      return "race";
    case Finding::Kind::kReuse:
      return "reuse";
    case Finding::Kind::kUseAfterFree:
      return "use-after-free";
    case Finding::Kind::kBounds:
      return "out-of-bounds";
    case Finding::Kind::kUnawaited:
      return "never-awaited";
    case Finding::Kind::kInFlight:
      return "left-in-flight";
  }
  return "?";
}

bool is_new(const Finding& finding) {
  const auto place = [](const AccessPtr& access) {
    return access == nullptr ? Place{0} : access->operation->place;
  };
  // The operator tells apart what has no place.
  const auto name = [&place](const AccessPtr& access) {
    return std::string(access == nullptr || place(access) != 0 ? "" : access->operation->name);
  };
  Reported& all = reported();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.keys
      .insert({finding.kind, place(finding.first), place(finding.second), name(finding.first),
               name(finding.second)})
      .second;
}

py::object to_python(Place place) {
  const PlaceText text = describe(place);
  if (text.file.empty() && text.node.empty()) {
    return py::none();
  }
  py::dict dict;
  dict["file"] = text.file;
  dict["line"] = text.line;
  dict["function"] = text.function;
  dict["node"] = text.node;
  dict["forward_file"] = text.forward_file;
  dict["forward_line"] = text.forward_line;
  return dict;
}

py::object to_python(const AccessPtr& access) {
  if (access == nullptr) {
    return py::none();
  }
  const Operation& operation = *access->operation;
  const TensorInfo& tensor = access->tensor;
  const Engine::Handle stream = engine().handle_of(operation.epoch.timeline);
  py::dict dict;
  dict["operator"] = operation.name;
  dict["on_host"] = operation.on_host;
  dict["device"] = device_of(stream);
  dict["stream_id"] = is_channel(stream) ? -1 : id_of(stream);
  dict["group"] = operation.group;
  dict["sequence"] = operation.sequence;
  dict["place"] = to_python(operation.place);
  dict["writes"] = access->writes;
  const auto known = std::min<std::size_t>(tensor.dims, TensorInfo::kMaxDims);
  dict["shape"] = py::tuple(py::cast(std::vector<std::int64_t>(
      tensor.sizes.begin(), tensor.sizes.begin() + static_cast<std::ptrdiff_t>(known))));
  dict["dtype"] = tensor.dtype;
  dict["low"] = access->region.low();
  dict["high"] = access->region.high();
  dict["storage_low"] = tensor.storage_low;
  dict["storage_bytes"] = tensor.storage_bytes;
  return dict;
}

py::dict to_python(const Finding& finding) {
  py::dict dict;
  dict["kind"] = kind_name(finding.kind);
  dict["first"] = to_python(finding.first);
  dict["second"] = to_python(finding.second);
  dict["freed_at"] = to_python(finding.freed_at);
  dict["freed_low"] = finding.freed_low;
  dict["freed_bytes"] = finding.freed_bytes;
  return dict;
}

// What follows is a crash, in every mode and each time: the tensor has no memory at all.
bool is_fatal(const Finding& finding) {
  return finding.kind == Finding::Kind::kBounds && finding.second->tensor.storage_low == 0;
}

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

struct Told {
  const Finding* finding;
  bool is_new;
};

// The exception to raise, if any. Needs the interpreter lock.
py::object hand_over(const std::vector<Told>& findings) {
  const auto handler = py::reinterpret_borrow<py::object>(reported().handler);
  if (!handler || handler.is_none()) {
    return py::none();
  }
  py::list list;
  for (const Told& told : findings) {
    py::dict dict = to_python(*told.finding);
    dict["is_new"] = told.is_new;
    dict["is_fatal"] = is_fatal(*told.finding);
    list.append(std::move(dict));
  }
  return handler(list);
}

// Calls `raise(exception)` with the lock held if there is something new that is to be raised.
template <typename Raise>
void report_new(const std::vector<Finding>& findings, Raise&& raise) {
  std::vector<Told> told;
  for (const Finding& finding : findings) {
    const bool fresh = is_new(finding);
    if (fresh || is_fatal(finding)) {
      told.push_back({&finding, fresh});
    }
  }
  if (told.empty() || interpreter_ends()) {
    return;
  }
  const py::gil_scoped_acquire gil;
  const py::object exception = hand_over(told);
  if (!exception.is_none()) {
    raise(exception);
  }
}

}  // namespace

void report(const std::vector<Finding>& findings) {
  report_new(findings, [](const py::object& exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw py::error_already_set();
  });
}

void report_after(const std::vector<Finding>& findings) {
  report_new(findings, [](const py::object& exception) {
    // Python takes a class here, and makes the exception of it without arguments.
    const py::object type = exception.attr("_as_class")();
    PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type.ptr());
  });
}

void log_all(const std::vector<Finding>& findings) {
  report_new(findings, [](const py::object&) {});
}

void set_handler(py::object handler) {
  Py_XDECREF(reported().handler);
  reported().handler = handler.release().ptr();
}

void forget_reported() {
  const std::lock_guard<std::mutex> lock(reported().mutex);
  reported().keys.clear();
}

}  // namespace torch_openreg::sanitizer
