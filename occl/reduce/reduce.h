// Elementwise reductions of many arrays into one, on the CPU that runs the process.
//
// The value of element i is finish(op(...op(op(src0[i], src1[i]), src2[i])...)): a sequential
// reduction in source order. float16 and bfloat16 are accumulated in float32 and rounded once at
// the end (to nearest, ties to even; NaN stays NaN, denormals are kept); all other types are
// accumulated in their own type. Integers wrap around. The result has the same bits for every CPU
// path, for every way to cut the arrays into parts and for every alignment; only the sign and the
// payload of a NaN made from two NaNs are not specified.
//
// Operations by datatype: see occlRedOp in occl/api/occl.h. MIN and MAX: a NaN wins over any
// number, and of equal values the first one stays. AVG: the sum, divided once by
// ReduceArgs::avg_divisor (integers truncate toward zero). Results of bool are 0 or 1.
#ifndef OCCL_REDUCE_REDUCE_H_
#define OCCL_REDUCE_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "occl/api/occl.h"
#include "occl/base/status.h"

namespace occl::reduce {

enum class RedKind { kSum, kProd, kMin, kMax, kAvg, kBand, kBor, kBxor, kPremulSum };
inline constexpr int kNumRedKinds = 9;

// Instruction sets, each including the ones before it. kAvx512Bf16 differs from kAvx512 only in
// how bfloat16 is rounded.
enum class CpuPath { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

struct ReduceArgs {
  // kPremulSum only: the factor of each source, as (re, im) pairs for complex datatypes. Rounded to
  // the type of the accumulator before use.
  const double* scales = nullptr;
  // kAvg only; at least 1.
  uint32_t avg_divisor = 1;
  // The results would only sweep the caches (see copy.h): they are stored past them, if all dsts
  // are aligned to a line. Slow where a dst is a src.
  bool stream = false;
};

using Kernel = void (*)(void* const* dsts, int n_dsts, const void* const* srcs, int n_srcs,
                        size_t count_elems, const ReduceArgs& args);

// What Resolve chose; plain data, valid for the life of the process.
struct Plan {
  Kernel kernel = nullptr;
  size_t element_bytes = 0;
};

// The best path of this CPU. Thread-safe, cheap.
CpuPath BestCpuPath();
const char* RedKindName(RedKind kind);  // "sum", "pre-multiplied sum", ...

// Chooses the kernel for a datatype and an operation. occlInvalidArgument, with both names, for a
// pair that makes no sense; *plan is then left alone. `path` must not be above BestCpuPath(); tests
// use it to force a lower one.
Status Resolve(occlDataType_t datatype, RedKind kind, Plan* plan, CpuPath path = BestCpuPath());

// dsts[k][i] = finish(op over srcs[0][i], srcs[1][i], ... in order), for 0 <= i < count_elems and
// every k. n_srcs >= 1, n_dsts >= 1. A dst may be exactly one of the srcs; any other overlap is not
// allowed. Pointers need no alignment. Does not block, allocate or fail.
inline void Run(const Plan& plan, void* const* dsts, int n_dsts, const void* const* srcs,
                int n_srcs, size_t count_elems, const ReduceArgs& args = {}) {
  plan.kernel(dsts, n_dsts, srcs, n_srcs, count_elems, args);
}

}  // namespace occl::reduce

#endif  // OCCL_REDUCE_REDUCE_H_
