#include "occl/reduce/reduce.h"

#include "occl/base/datatypes.h"
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

Status Resolve(occlDataType_t datatype, RedKind kind, Plan* plan, CpuPath path) {
  const bool known = datatype >= 0 && datatype < occlNumTypes && static_cast<int>(kind) >= 0 &&
                     static_cast<int>(kind) < kNumRedKinds;
  const Kernel kernel = known ? Find(datatype, kind, path) : nullptr;
  if (kernel == nullptr) {
    return Error(occlInvalidArgument,
                 "reduction \"%s\" is not defined for %s (see occlRedOp in occl.h)",
                 RedKindName(kind), DataTypeName(datatype));
  }
  *plan = {kernel, DataTypeSize(datatype)};
  return Status();
}

}  // namespace occl::reduce
