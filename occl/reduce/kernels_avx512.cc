#define OCCL_VECTOR_BYTES 64
#include "occl/reduce/kernels.h"

namespace occl::reduce {

constexpr KernelTable kAvx512Kernels = AllKernels();

}  // namespace occl::reduce
