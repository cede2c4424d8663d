#define OCCL_VECTOR_BYTES 16
#include "occl/reduce/kernels.h"

namespace occl::reduce {

constexpr KernelTable kPortableKernels = AllKernels();

}  // namespace occl::reduce
