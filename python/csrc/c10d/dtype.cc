#include "python/csrc/c10d/dtype.h"

#include <c10/util/Exception.h>

namespace torch_openreg {

using c10d::ReduceOp;

WireType wire_type(at::ScalarType dtype, const char* operation) {
  switch (dtype) {
    case at::kByte:
      return {occlUint8, 1};
    case at::kChar:
      return {occlInt8, 1};
    case at::kShort:
      return {occlInt16, 1};
    case at::kInt:
      return {occlInt32, 1};
    case at::kLong:
      return {occlInt64, 1};
    case at::kUInt16:
      return {occlUint16, 1};
    case at::kUInt32:
      return {occlUint32, 1};
    case at::kUInt64:
      return {occlUint64, 1};
    case at::kBool:
      return {occlBool, 1};
    case at::kHalf:
      return {occlFloat16, 1};
    case at::kBFloat16:
      return {occlBfloat16, 1};
    case at::kFloat:
      return {occlFloat32, 1};
    case at::kDouble:
      return {occlFloat64, 1};
    case at::kComplexHalf:
      return {occlComplex32, 1};
    case at::kComplexFloat:
      return {occlComplex64, 1};
    case at::kComplexDouble:
      return {occlComplex128, 1};
    case at::kFloat8_e4m3fn:
      return {occlFloat8e4m3, 1};
    case at::kFloat8_e5m2:
      return {occlFloat8e5m2, 1};
    case at::kFloat8_e4m3fnuz:
      return {occlFloat8e4m3fnuz, 1};
    case at::kFloat8_e5m2fnuz:
      return {occlFloat8e5m2fnuz, 1};
    case at::kFloat8_e8m0fnu:
      return {occlFloat8e8m0, 1};
    case at::kFloat4_e2m1fn_x2:
      return {occlFloat4e2m1x2, 1};
    default:
      break;
  }
  TORCH_CHECK_TYPE(!c10::isQIntType(dtype) && dtype != at::ScalarType::Undefined, "OCCL ",
                   operation, ": tensors of dtype ", dtype,
                   " cannot be sent; send their integer representation");
  return {occlBytes, c10::elementSize(dtype)};
}

WireType wire_type_for_reduction(at::ScalarType dtype, const ReduceOp& op, const char* operation) {
  const WireType wire = wire_type(dtype, operation);
  const bool real_float = wire.type == occlFloat16 || wire.type == occlBfloat16 ||
                          wire.type == occlFloat32 || wire.type == occlFloat64;
  const bool complex = c10::isComplexType(dtype);
  const bool boolean = dtype == at::kBool;
  const bool integer = c10::isIntegralType(dtype, /*includeBool=*/true);
  bool allowed = false;
  switch (op.op_) {
    case ReduceOp::SUM:
    case ReduceOp::PRODUCT:
      allowed = real_float || complex || integer;
      break;
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      allowed = real_float || integer;
      break;
    case ReduceOp::AVG:
      allowed = real_float || complex || (integer && !boolean);
      break;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      allowed = integer;
      break;
    case ReduceOp::PREMUL_SUM:
      allowed = real_float || complex;
      break;
    default:
      break;
  }
  TORCH_CHECK_TYPE(allowed, "OCCL ", operation, ": ", reduce_operation_name(op),
                   " is not defined for tensors of dtype ", dtype);
  return wire;
}

occlRedOp_t reduce_operation(const ReduceOp& op, const char* operation) {
  switch (op.op_) {
    case ReduceOp::SUM:
      return occlSum;
    case ReduceOp::AVG:
      return occlAvg;
    case ReduceOp::PRODUCT:
      return occlProd;
    case ReduceOp::MIN:
      return occlMin;
    case ReduceOp::MAX:
      return occlMax;
    case ReduceOp::BAND:
      return occlBand;
    case ReduceOp::BOR:
      return occlBor;
    case ReduceOp::BXOR:
      return occlBxor;
    default:
      TORCH_CHECK_VALUE(false, "OCCL ", operation, ": unknown reduce operation ",
                        static_cast<int>(op.op_));
  }
}

const char* reduce_operation_name(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "unknown operation";
  }
}

}  // namespace torch_openreg
