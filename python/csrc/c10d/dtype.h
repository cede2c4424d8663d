// torch's dtypes and reduce operations in OCCL's terms.
#ifndef PYTHON_CSRC_C10D_DTYPE_H_
#define PYTHON_CSRC_C10D_DTYPE_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "occl/api/occl.h"

namespace torch_openreg {

// How an element travels: `count` elements of the tensor are count * units of `type`.
struct WireType {
  occlDataType_t type = occlNumTypes;
  std::size_t units = 1;
};

// For operations that only move data: every dtype that has a fixed size. Throws TypeError for the
// others (quantized ones).
WireType wire_type(at::ScalarType dtype, const char* operation);
// For reductions: refuses dtypes and pairs that make no sense (float8, MIN of complex numbers,
// bitwise operations on floats, AVG of bool) with a TypeError that names both. Of bool, SUM is "or"
// and PRODUCT is "and", as in NCCL's and UCC's mapping.
WireType wire_type_for_reduction(at::ScalarType dtype, const c10d::ReduceOp& op,
                                 const char* operation);

// OCCL's operation; PREMUL_SUM is not among them (Communicator::premul_sum makes it).
occlRedOp_t reduce_operation(const c10d::ReduceOp& op, const char* operation);
const char* reduce_operation_name(const c10d::ReduceOp& op);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_DTYPE_H_
