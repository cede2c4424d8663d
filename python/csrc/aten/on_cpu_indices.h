// As on_cpu.h, for operators that take a list of optional index tensors.
#ifndef PYTHON_CSRC_ATEN_ON_CPU_INDICES_H_
#define PYTHON_CSRC_ATEN_ON_CPU_INDICES_H_

#include <vector>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

// Indices may be tensors of the host, as with CUDA.
template <>
class CpuArgument<const c10::List<std::optional<at::Tensor>>&> {
 public:
  using List = c10::List<std::optional<at::Tensor>>;

  CpuArgument(CpuCall& call, const List& values) {
    aliases_.reserve(values.size());
    originals_.reserve(values.size());
    for (const std::optional<at::Tensor> value : values) {
      if (value.has_value()) {
        originals_.push_back(*value);
        aliases_.push_back(call.at(call.add(originals_.back(), /*written=*/false)));
      } else {
        aliases_.push_back(std::nullopt);
      }
    }
  }
  const List& get() { return aliases_; }
  static void see(DeviceFinder& finder, const List& values) {
    for (const std::optional<at::Tensor> value : values) {
      if (value.has_value() && value->defined() && !value->device().is_cpu()) {
        finder.see(*value);
      }
    }
  }

 private:
  List aliases_;
  std::vector<at::Tensor> originals_;  // the call refers to them
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_ON_CPU_INDICES_H_
