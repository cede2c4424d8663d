#include "python/csrc/sanitizer/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace torch_openreg::sanitizer {
namespace {

// An index waits for masks only, which is not enough to say that it waits.
bool host_waits(const c10::OperatorHandle& op) {
  return op.operator_name().name != "aten::index" &&
         (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape));
}

bool returns_no_tensor(const c10::FunctionSchema& schema) {
  const auto is_tensor = [](const c10::Argument& result) {
    const c10::TypeKind kind = result.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
  };
  const auto& returns = schema.returns();
  return !returns.empty() && std::none_of(returns.begin(), returns.end(), is_tensor);
}

// By name without overload, those that are not as most are.
using Table = std::unordered_map<std::string, OperatorTraits>;

Table make_table() {
  Table table;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value()) {
      continue;
    }
    const bool waits = host_waits(*op);
    if (waits || returns_no_tensor(op->schema())) {
      OperatorTraits& traits = table[name.name];
      traits.host_waits = traits.host_waits || waits;
      traits.touches_memory = traits.host_waits;
    }
  }
  return table;
}

}  // namespace

OperatorTraits traits_of(const char* name) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::unordered_map<const void*, OperatorTraits>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = known->find(name);
  if (found != known->end()) {
    return found->second;
  }
  static const Table table = make_table();
  OperatorTraits traits;
  if (const auto entry = table.find(name); entry != table.end()) {
    traits = entry->second;
  }
  const std::string_view text(name);
  traits.writes_no_lists = text.starts_with("aten::_foreach_") && !text.ends_with('_');
  known->emplace(name, traits);
  return traits;
}

}  // namespace torch_openreg::sanitizer
