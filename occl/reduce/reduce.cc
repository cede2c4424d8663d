#include "occl/reduce/reduce.h"

#include "occl/reduce/kernel_table.h"

namespace occl::reduce {
namespace {

CpuPath DetectCpuPath() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return CpuPath::kAvx512Bf16;
  if (avx512) return CpuPath::kAvx512;
  return avx2 ? CpuPath::kAvx2 : CpuPath::kPortable;
}

Kernel Find(occlDataType_t datatype, RedKind kind, CpuPath path) {
  const int row = static_cast<int>(datatype), column = static_cast<int>(kind);
  switch (path) {
    case CpuPath::kAvx512Bf16:
      if (Kernel kernel = kAvx512Bf16Kernels.kernels[row][column]) return kernel;
      [[fallthrough]];
    case CpuPath::kAvx512:
      return kAvx512Kernels.kernels[row][column];
    case CpuPath::kAvx2:
      return kAvx2Kernels.kernels[row][column];
    case CpuPath::kPortable:
      break;
  }
  return kPortableKernels.kernels[row][column];
}

}  // namespace

CpuPath BestCpuPath() {
  static const CpuPath path = DetectCpuPath();
  return path;
}

const char* RedKindName(RedKind kind) {
  switch (kind) {
    case RedKind::kSum:
      return "sum";
    case RedKind::kProd:
      return "product";
    case RedKind::kMin:
      return "min";
    case RedKind::kMax:
      return "max";
    case RedKind::kAvg:
      return "avg";
    case RedKind::kBand:
      return "bitwise and";
    case RedKind::kBor:
      return "bitwise or";
    case RedKind::kBxor:
      return "bitwise xor";
    case RedKind::kPremulSum:
      return "pre-multiplied sum";
  }
  return "unknown operation";
}

const char* DataTypeName(occlDataType_t t) {
  static constexpr const char* kNames[occlNumTypes] = {
      "int8",       "uint8",       "int32",       "uint32", "int64",  "uint64", "float16",
      "float32",    "float64",     "bfloat16",    "int16",  "uint16", "bool",   "complex64",
      "complex128", "float8_e4m3", "float8_e5m2", "float8", "bytes"};
  return t >= 0 && t < occlNumTypes ? kNames[t] : "unknown datatype";
}

occlResult_t Resolve(occlDataType_t datatype, RedKind kind, Plan* plan, std::string* message,
                     CpuPath path) {
  const bool known = datatype >= 0 && datatype < occlNumTypes && static_cast<int>(kind) >= 0 &&
                     static_cast<int>(kind) < kNumRedKinds;
  const Kernel kernel = known ? Find(datatype, kind, path) : nullptr;
  if (kernel == nullptr) {
    *message = std::string("reduction ") + RedKindName(kind) + " is not defined for " +
               DataTypeName(datatype) + " (see occlRedOp in occl.h)";
    return occlInvalidArgument;
  }
  static constexpr size_t kBytes[occlNumTypes] = {1, 1, 4, 4, 8,  8, 2, 4, 8, 2,
                                                  2, 2, 1, 8, 16, 1, 1, 1, 1};
  *plan = {kernel, kBytes[datatype]};
  return occlSuccess;
}

}  // namespace occl::reduce
