// Operators on lists of tensors: the CPU's kernels without boxing, told what they write to.
#ifndef PYTHON_CSRC_ATEN_FOREACH_H_
#define PYTHON_CSRC_ATEN_FOREACH_H_

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "python/csrc/aten/on_cpu.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {

namespace detail {

// In place: the first list is written to, which the sanitizer has to be told.
template <typename Op, typename Schema = typename Op::schema>
struct InPlace;
template <typename Op, typename Result, typename... Rest>
struct InPlace<Op, Result(at::TensorList, Rest...)> {
  static Result call(at::TensorList self, Rest... rest) {
    const sanitizer::WrittenFirst written(self.size());
    return OnCpu<Op, typename Op::schema>::call(self, std::forward<Rest>(rest)...);
  }
};

}  // namespace detail

// As register_all_on_cpu, for operators that write to their first argument, a list.
template <typename... Ops>
void register_all_in_place(torch::Library& library) {
  const auto name = [](const char* op, const char* overload) {
    return *overload == '\0' ? std::string(op) : std::string(op) + "." + overload;
  };
  (library.impl(name(Ops::name, Ops::overload_name).c_str(),
                TORCH_FN((&detail::InPlace<Ops>::call))),
   ...);
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_FOREACH_H_
