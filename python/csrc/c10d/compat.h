// The differences between the versions of torch's c10d that this binding can be built for.
//
// torch 2.14 renames the single-tensor operations of c10d::Backend (all_gather_single for
// _allgather_base, all_gather_single_coalesced for allgather_into_tensor_coalesced,
// reduce_scatter_single, reduce_scatter_single_coalesced, all_to_all_single) and keeps the old
// names as virtual aliases, each forwarding to the other until one is overridden. So overriding the
// old names, as ProcessGroupOCCL does, serves both. What does differ is named here and only here.
#ifndef PYTHON_CSRC_C10D_COMPAT_H_
#define PYTHON_CSRC_C10D_COMPAT_H_

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13 && TORCH_VERSION_MINOR <= 14,
              "ProcessGroupOCCL knows the c10d of torch 2.13 and 2.14; read c10d/Backend.hpp of "
              "your torch and extend python/csrc/c10d/compat.h");

namespace torch_openreg {

// Backend::Options::clone() is virtual from 2.14 on. A class that adds fields must override it:
// split and merge would get the base part only.
#if TORCH_VERSION_MINOR >= 14
#define TORCH_OPENREG_OPTIONS_CLONE_OVERRIDE override
#else
#define TORCH_OPENREG_OPTIONS_CLONE_OVERRIDE
#endif

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_COMPAT_H_
