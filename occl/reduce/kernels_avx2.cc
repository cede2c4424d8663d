#define OCCL_VECTOR_BYTES 32
#include "occl/reduce/kernels.h"

namespace occl::reduce {

constexpr KernelTable kAvx2Kernels = AllKernels();

}  // namespace occl::reduce
