// One table of kernels per CPU path. Private to occl/reduce.
#ifndef OCCL_REDUCE_KERNEL_TABLE_H_
#define OCCL_REDUCE_KERNEL_TABLE_H_

#include "occl/reduce/reduce.h"

namespace occl::reduce {

// Null where the pair makes no sense, or (kAvx512Bf16) where the path below has the best kernel.
struct KernelTable {
  Kernel kernels[occlNumTypes][kNumRedKinds] = {};
};

extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;  // bfloat16 only

}  // namespace occl::reduce

#endif  // OCCL_REDUCE_KERNEL_TABLE_H_
