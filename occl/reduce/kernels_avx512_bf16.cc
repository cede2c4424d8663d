#define OCCL_VECTOR_BYTES 64
#include "occl/reduce/kernels.h"

namespace occl::reduce {
namespace {

constexpr KernelTable BFloat16Kernels() {
  KernelTable table;
  FillFloat<BFloat16>(table.kernels[occlBfloat16]);
  return table;
}

}  // namespace

constexpr KernelTable kAvx512Bf16Kernels = BFloat16Kernels();

}  // namespace occl::reduce
