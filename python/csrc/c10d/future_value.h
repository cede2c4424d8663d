// What the future of an operation holds.
#ifndef PYTHON_CSRC_C10D_FUTURE_VALUE_H_
#define PYTHON_CSRC_C10D_FUTURE_VALUE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace torch_openreg {

// Called on the stream behind the operation. ProcessGroupNCCL's future of an all_gather holds what
// it gathers into, one tensor, and torch's quantising communication hooks index it so; here the
// parts were written in place, and only who asks for the future pays for the copy.
c10::IValue future_value(c10d::OpType type, const std::vector<at::Tensor>& outputs);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_FUTURE_VALUE_H_
