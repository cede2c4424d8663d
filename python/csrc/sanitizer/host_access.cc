// The host's own operators on pinned memory that streams use: what the CPU's kernels read and write
// is seen through torch's RecordFunction, which every call of the dispatcher passes.
#include "python/csrc/sanitizer/host_access.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/csrc/sanitizer/places.h"
#include "python/csrc/sanitizer/report.h"
#include "python/csrc/sanitizer/session.h"

namespace torch_openreg::sanitizer {
namespace {

// Which of an operator's arguments the CPU's kernel reads and writes.
struct HostKernel {
  bool touches_memory = false;
  const char* name = "";
  std::uint64_t written = 0;  // a bit for each argument
};

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

HostKernel kernel_of(const c10::OperatorName& name) {
  HostKernel kernel;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  // Composed operators call others, which are seen by themselves.
  if (!op.has_value() || returns_view(op->schema()) ||
      op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return kernel;
  }
  for (const char* const metadata : {"aten::is_pinned", "aten::resize_", "aten::set_",
                                     "aten::record_stream", "aten::is_set_to"}) {
    if (name.name == metadata) {
      return kernel;
    }
  }
  if (name.name.rfind("aten::empty", 0) == 0 || name.name.rfind("aten::new_empty", 0) == 0) {
    return kernel;
  }
  kernel.touches_memory = true;
  kernel.name = op->schema().name().c_str();  // lives as long as the operator
  const auto& arguments = op->schema().arguments();
  for (std::size_t i = 0; i < arguments.size() && i < 64; ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      kernel.written |= std::uint64_t{1} << i;
    }
  }
  return kernel;
}

const HostKernel& known_kernel(const c10::OperatorName& name) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::unordered_map<c10::OperatorName, HostKernel>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = known->find(name);
  return found != known->end() ? found->second
                               : known->emplace(name, kernel_of(name)).first->second;
}

template <typename F>
void for_each_tensor(const c10::IValue& value, F&& see) {
  if (value.isTensor()) {
    see(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      see(element.toTensor());
    }
  }
}

bool used_by_streams(const at::Tensor& tensor) {
  Access access;
  return describe_access(tensor, &access) &&
         engine().used_by_streams(access.region.low(), access.region.high());
}

std::vector<Finding> host_findings(const char* name, const std::vector<Use>& uses) {
  Operation operation;
  operation.name = name;
  operation.on_host = true;
  operation.place = current_place();
  const auto shared = std::make_shared<const Operation>(std::move(operation));
  std::vector<Finding> findings;
  for (const Use& use : uses) {
    Access access;
    if (describe_access(*use.tensor, &access)) {
      access.operation = shared;
      access.writes = use.writes;
      for (Finding& finding : engine().host_access(std::move(access))) {
        findings.push_back(std::move(finding));
      }
    }
  }
  return findings;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  if (!enabled()) {
    return nullptr;
  }
  const auto name = function.operator_name();
  const auto inputs = function.inputs();
  std::vector<Use> uses;
  bool on_device = false;
  const HostKernel* kernel = nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      on_device = on_device || !tensor.is_cpu();
      if (tensor.is_cpu() && name.has_value() && used_by_streams(tensor)) {
        kernel = kernel != nullptr ? kernel : &known_kernel(*name);
        uses.push_back({&tensor, ((kernel->written >> i) & 1) != 0});
      }
    });
  }
  // A kernel of the device that takes host memory has its own hook.
  if (kernel != nullptr && kernel->touches_memory && !on_device) {
    report_after(host_findings(kernel->name, uses));
  }
  return nullptr;
}

std::mutex handle_mutex;
std::optional<at::CallbackHandle> handle;  // guarded by handle_mutex

}  // namespace

void watch_host() {
  const std::lock_guard<std::mutex> lock(handle_mutex);
  if (!handle.has_value()) {
    handle = at::addGlobalCallback(at::RecordFunctionCallback(&on_operator)
                                       .needsInputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
  }
}

void unwatch_host() {
  const std::lock_guard<std::mutex> lock(handle_mutex);
  if (handle.has_value()) {
    at::removeCallback(*handle);
    handle.reset();
  }
}

void host_reads(const char* name, const at::Tensor& tensor) {
  if (enabled() && tensor.is_cpu() && used_by_streams(tensor)) {
    report(host_findings(name, {{&tensor, false}}));
  }
}

}  // namespace torch_openreg::sanitizer
