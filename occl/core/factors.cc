#include "occl/core/factors.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "occl/base/datatypes.h"

namespace occl {
namespace {

template <typename T>
T Load(const void* from, int index = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

double FromFloat16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double value;
  if (exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double FromBfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  return Load<float>(&wide);
}

bool ReadScalar(const void* scalar, occlDataType_t datatype, double* scale) {
  scale[1] = 0;
  switch (datatype) {
    case occlFloat16:
      scale[0] = FromFloat16(Load<uint16_t>(scalar));
      return true;
    case occlBfloat16:
      scale[0] = FromBfloat16(Load<uint16_t>(scalar));
      return true;
    case occlFloat32:
      scale[0] = Load<float>(scalar);
      return true;
    case occlFloat64:
      scale[0] = Load<double>(scalar);
      return true;
    case occlComplex32:
      scale[0] = FromFloat16(Load<uint16_t>(scalar));
      scale[1] = FromFloat16(Load<uint16_t>(scalar, 1));
      return true;
    case occlComplex64:
      scale[0] = Load<float>(scalar);
      scale[1] = Load<float>(scalar, 1);
      return true;
    case occlComplex128:
      scale[0] = Load<double>(scalar);
      scale[1] = Load<double>(scalar, 1);
      return true;
    default:
      return false;
  }
}

}  // namespace

Status Factors::Create(const void* scalar, occlDataType_t datatype, int* op) {
  Factor factor = {datatype, {1, 0}};
  if (!ReadScalar(scalar, datatype, factor.scale)) {
    return Error(occlInvalidArgument,
                 "a pre-multiplied sum needs a float or complex datatype, not %s",
                 DataTypeName(datatype));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  *op = next_++;
  factors_[*op] = factor;
  return Status();
}

Status Factors::Destroy(int op) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (factors_.erase(op) == 1) return Status();
  return Error(occlInvalidArgument, "%d is no reduce operation of this communicator's", op);
}

Status Factors::Find(int op, occlDataType_t datatype, double* scale) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = factors_.find(op);
  if (found == factors_.end()) {
    return Error(occlInvalidArgument, "%d is no reduce operation of this communicator's", op);
  }
  if (found->second.datatype != datatype) {
    return Error(occlInvalidArgument, "the pre-multiplied sum is for %s, not for %s",
                 DataTypeName(found->second.datatype), DataTypeName(datatype));
  }
  std::memcpy(scale, found->second.scale, sizeof(found->second.scale));
  return Status();
}

}  // namespace occl
