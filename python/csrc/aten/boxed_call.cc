#include "python/csrc/aten/boxed_call.h"

#include <optional>
#include <utility>

namespace torch_openreg {

using c10::IValue;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool takes_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    return type->expectRef<c10::OptionalType>().getElementType()->kind() ==
           c10::TypeKind::GeneratorType;
  }
  return type->kind() == c10::TypeKind::GeneratorType;
}

void for_each_tensor(const c10::FunctionSchema& schema, at::ArrayRef<IValue> arguments,
                     const std::function<void(const at::Tensor&, bool)>& see) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& value = arguments[i];
    const bool written = is_written(schema.arguments()[i]);
    if (value.isTensor()) {
      see(value.toTensor(), written);
    } else if (value.isTensorList()) {
      for (const IValue& element : value.toListRef()) {
        see(element.toTensor(), written);
      }
    } else if (value.isOptionalTensorList()) {
      for (const IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          see(element.toTensor(), written);
        }
      }
    }
  }
}

void replace_tensors(const c10::FunctionSchema& schema, IValue* arguments,
                     const std::function<at::Tensor(const at::Tensor&, bool)>& replace) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    IValue& value = arguments[i];
    const bool written = is_written(schema.arguments()[i]);
    if (value.isTensor()) {
      value = replace(value.toTensor(), written);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      list.reserve(value.toListRef().size());
      for (const IValue& element : value.toListRef()) {
        list.push_back(replace(element.toTensor(), written));
      }
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& element : value.toListRef()) {
        list.push_back(element.isTensor()
                           ? std::optional<at::Tensor>(replace(element.toTensor(), written))
                           : std::nullopt);
      }
      value = std::move(list);
    }
  }
}

void replace_devices(const c10::FunctionSchema& schema, IValue* arguments, CpuCall& call) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    IValue& value = arguments[i];
    if (value.isDevice()) {
      if (value.toDevice().is_privateuseone()) {
        value = c10::Device(c10::DeviceType::CPU);
      }
    } else if ((value.isNone() || value.isGenerator()) && takes_generator(schema.arguments()[i])) {
      value = call.generator(value.toOptional<at::Generator>());
    }
  }
}

}  // namespace torch_openreg
