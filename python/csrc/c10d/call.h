// One call of an operation on its way to OCCL: its arguments, checked and made contiguous.
#ifndef PYTHON_CSRC_C10D_CALL_H_
#define PYTHON_CSRC_C10D_CALL_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "python/csrc/c10d/communicator.h"
#include "python/csrc/c10d/dtype.h"
#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/work.h"

namespace torch_openreg {

// Every check throws ValueError, TypeError or NotImplementedError before any data moves, naming the
// operation, the rank, what was expected and what came. A tensor that is not contiguous travels
// through a contiguous copy on the device; outputs are copied back after the operation, on its
// stream. Outputs that overlap themselves are refused.
class Call {
 public:
  // `name` is static storage, in the words of torch's tools: "all_reduce".
  Call(c10d::OpType type, const char* name, const GroupIdentity& group, bool asynchronous,
       std::chrono::milliseconds timeout)
      : type(type), name(name), group(group), asynchronous(asynchronous), timeout(timeout) {}

  // The addresses that OCCL gets. The tensors are kept until the operation is done. All tensors of
  // a call have one device, and one dtype.
  const void* input(const at::Tensor& tensor);
  void* output(const at::Tensor& tensor);
  // An output whose contents are also read.
  void* in_place(const at::Tensor& tensor);

  // What the profiler and the flight recorder show; must live as long as the call.
  void show(c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<at::Tensor> outputs) {
    shown_inputs = inputs;
    shown_outputs = outputs;
  }

  std::size_t units(const at::Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.numel()) * wire.units;
  }
  // The wire type of the tensors given so far (at least one).
  WireType moved() const { return wire_type(dtype(), name); }
  WireType reduced(const c10d::ReduceOp& op) const {
    return wire_type_for_reduction(dtype(), op, name);
  }
  at::ScalarType dtype() const { return dtype_; }
  c10::DeviceIndex device() const { return device_; }
  bool has_device() const { return device_ >= 0; }
  void set_device(c10::DeviceIndex device) { device_ = device; }
  // The tensors that follow may have another dtype: the next operation of several.
  void next_dtype() { dtype_ = at::ScalarType::Undefined; }

  // "OCCL all_reduce on rank 0 of 2 in group '0': "
  std::string prefix() const;
  void check_single(c10::ArrayRef<at::Tensor> tensors, const char* what) const;
  void check_size(std::size_t found, std::size_t expected, const char* what) const;
  void check_rank(std::int64_t rank, const char* what) const;

  const c10d::OpType type;
  const char* const name;
  const GroupIdentity& group;
  bool asynchronous;
  std::chrono::milliseconds timeout;  // kUnsetTimeout: the group's
  WireType wire;                      // set by each operation before it counts units
  std::optional<PointToPointKey> point_to_point;
  bool blocks_host = false;

  c10::ArrayRef<at::Tensor> shown_inputs;
  c10::ArrayRef<at::Tensor> shown_outputs;
  c10::ArrayRef<std::int64_t> input_splits;
  c10::ArrayRef<std::int64_t> output_splits;

  std::vector<at::Tensor> results;  // outputs, as given
  std::vector<at::Tensor> kept;     // inputs and staging copies
  WorkOCCL::CopyBacks copy_backs;

 private:
  void check(const at::Tensor& tensor);
  void check_slow(const at::Tensor& tensor);
  void check_written(const at::Tensor& tensor) const;

  c10::DeviceIndex device_ = -1;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_CALL_H_
