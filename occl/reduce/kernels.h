// The loops over the arrays and the table of all kernels of one path. Included once by each
// kernels_<path>.cc, which sets OCCL_VECTOR_BYTES.
#ifndef OCCL_REDUCE_KERNELS_H_
#define OCCL_REDUCE_KERNELS_H_

#include <cstdint>

#include "occl/reduce/elements.h"
#include "occl/reduce/kernel_table.h"

namespace occl::reduce {
namespace {

// What happens to a source as it is read, and to the accumulator at the end.
template <class CombineOp>
struct Simple {
  using Combine = CombineOp;
  template <class E>
  static typename E::Acc Take(Bytes bytes, int, const ReduceArgs&) {
    return E::Decode(bytes);
  }
  template <class E>
  static Bytes Finish(typename E::Acc acc, const ReduceArgs&) {
    return E::Encode(acc);
  }
};
struct Average : Simple<Add> {
  template <class E>
  static Bytes Finish(typename E::Acc acc, const ReduceArgs& args) {
    return E::Encode(Divide(acc, args.avg_divisor));
  }
};
struct Premultiplied : Simple<Add> {
  template <class E>
  static typename E::Acc Take(Bytes bytes, int source, const ReduceArgs& args) {
    return Mul::Do(E::Decode(bytes), E::Scale(args.scales, source));
  }
};

struct Arrays {
  void* const* dsts;
  int n_dsts;
  const void* const* srcs;
  int n_srcs;
  bool stream;
};

inline bool CanStream(const Arrays& arrays) {
  constexpr uintptr_t kLine = 64;
  for (int d = 0; d < arrays.n_dsts; ++d) {
    if (reinterpret_cast<uintptr_t>(arrays.dsts[d]) % kLine != 0) return false;
  }
  return true;
}

inline void Put(void* p, Bytes v, bool stream) { stream ? StreamBytes(p, v) : StoreBytes(p, v); }

inline const char* Source(const Arrays& arrays, int s, size_t offset) {
  return static_cast<const char*>(arrays.srcs[s]) + offset;
}

// kUnroll vectors, from `offset` bytes on. All sources are read before anything is written.
template <class E, class Op, int kUnroll>
inline __attribute__((always_inline)) void Step(const Arrays& arrays, size_t offset,
                                                const ReduceArgs& args) {
  const int n_srcs = arrays.n_srcs;
  typename E::Acc acc[kUnroll];
  const char* first = Source(arrays, 0, offset);
#pragma GCC unroll 8
  for (int u = 0; u < kUnroll; ++u) {
    acc[u] = Op::template Take<E>(LoadBytes(first + u * kVectorBytes), 0, args);
  }
#pragma GCC unroll 4
  for (int s = 1; s < n_srcs; ++s) {
    const char* src = Source(arrays, s, offset);
#pragma GCC unroll 8
    for (int u = 0; u < kUnroll; ++u) {
      acc[u] =
          Op::Combine::Do(acc[u], Op::template Take<E>(LoadBytes(src + u * kVectorBytes), s, args));
    }
  }
  Bytes out[kUnroll];
#pragma GCC unroll 8
  for (int u = 0; u < kUnroll; ++u) out[u] = Op::template Finish<E>(acc[u], args);
  for (int d = 0; d < arrays.n_dsts; ++d) {
    char* dst = static_cast<char*>(arrays.dsts[d]) + offset;
#pragma GCC unroll 8
    for (int u = 0; u < kUnroll; ++u) Put(dst + u * kVectorBytes, out[u], arrays.stream);
  }
}

// The last elements, fewer than a vector: through a padded copy, with the same instructions.
template <class E, class Op>
void Tail(const Arrays& arrays, size_t offset, size_t bytes, const ReduceArgs& args) {
  typename E::Acc acc = {};
  for (int s = 0; s < arrays.n_srcs; ++s) {
    char padded[kVectorBytes] = {};
    __builtin_memcpy(padded, Source(arrays, s, offset), bytes);
    const typename E::Acc next = Op::template Take<E>(LoadBytes(padded), s, args);
    acc = s == 0 ? next : Op::Combine::Do(acc, next);
  }
  const Bytes out = Op::template Finish<E>(acc, args);
  for (int d = 0; d < arrays.n_dsts; ++d) {
    __builtin_memcpy(static_cast<char*>(arrays.dsts[d]) + offset, &out, bytes);
  }
}

// More sources than the prefetchers and the ways of the first-level cache can follow: a few at a
// time, with the accumulators of one block of the arrays kept in that cache in between.
inline constexpr int kFewSources = 8;
inline constexpr int kGroupSources = 4;
inline constexpr int kBlockVectors = 4096 / kVectorBytes;

template <class E, class Op>
void BlockOfMany(const Arrays& arrays, size_t offset, const ReduceArgs& args) {
  constexpr int kUnroll = 4;
  typename E::Acc stored[kBlockVectors];
  for (int begin = 0; begin < arrays.n_srcs; begin += kGroupSources) {
    const int end = begin + kGroupSources < arrays.n_srcs ? begin + kGroupSources : arrays.n_srcs;
    for (int v = 0; v < kBlockVectors; v += kUnroll) {
      const size_t at = offset + static_cast<size_t>(v) * kVectorBytes;
      typename E::Acc acc[kUnroll];
#pragma GCC unroll 8
      for (int u = 0; u < kUnroll; ++u) acc[u] = stored[v + u];
      for (int s = begin; s < end; ++s) {
        const char* src = Source(arrays, s, at);
#pragma GCC unroll 8
        for (int u = 0; u < kUnroll; ++u) {
          const auto next = Op::template Take<E>(LoadBytes(src + u * kVectorBytes), s, args);
          acc[u] = s == 0 ? next : Op::Combine::Do(acc[u], next);
        }
      }
#pragma GCC unroll 8
      for (int u = 0; u < kUnroll; ++u) stored[v + u] = acc[u];
    }
  }
  for (int v = 0; v < kBlockVectors; ++v) {
    const Bytes out = Op::template Finish<E>(stored[v], args);
    const size_t at = offset + static_cast<size_t>(v) * kVectorBytes;
    for (int d = 0; d < arrays.n_dsts; ++d) {
      Put(static_cast<char*>(arrays.dsts[d]) + at, out, arrays.stream);
    }
  }
}

template <class E, class Op>
void Loop(const Arrays& arrays, size_t bytes, const ReduceArgs& args) {
  constexpr int kUnroll = 4;
  constexpr size_t kStepBytes = kUnroll * kVectorBytes;
  size_t offset = 0;
  if (arrays.n_srcs > kFewSources) {
    constexpr size_t kBlockBytes = kBlockVectors * kVectorBytes;
    for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) {
      BlockOfMany<E, Op>(arrays, offset, args);
    }
  }
  for (; offset + kStepBytes <= bytes; offset += kStepBytes) {
    Step<E, Op, kUnroll>(arrays, offset, args);
  }
  for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
    Step<E, Op, 1>(arrays, offset, args);
  }
  if (offset < bytes) Tail<E, Op>(arrays, offset, bytes - offset, args);
}

// Two sources, a line at a time: with few streams that is faster than a few lines of each in turn.
template <class E, class Op, int kDsts>
void LoopPair(const Arrays& arrays, size_t bytes, const ReduceArgs& args) {
  const char* const a = Source(arrays, 0, 0);
  const char* const b = Source(arrays, 1, 0);
  char* const first = static_cast<char*>(arrays.dsts[0]);
  char* const second = static_cast<char*>(arrays.dsts[kDsts - 1]);
  size_t offset = 0;
#pragma GCC unroll 4
  for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
    const auto x = Op::template Take<E>(LoadBytes(a + offset), 0, args);
    const auto y = Op::template Take<E>(LoadBytes(b + offset), 1, args);
    const Bytes out = Op::template Finish<E>(Op::Combine::Do(x, y), args);
    Put(first + offset, out, arrays.stream);
    if (kDsts == 2) Put(second + offset, out, arrays.stream);
  }
  if (offset < bytes) Tail<E, Op>(arrays, offset, bytes - offset, args);
}

template <class E, class Op>
void Reduce(void* const* dsts, int n_dsts, const void* const* srcs, int n_srcs, size_t count_elems,
            const ReduceArgs& args) {
  Arrays arrays = {dsts, n_dsts, srcs, n_srcs, false};
  arrays.stream = args.stream && CanStream(arrays);
  const size_t bytes = count_elems * E::kElementBytes;
  if (n_srcs == 2 && n_dsts == 1) {
    LoopPair<E, Op, 1>(arrays, bytes, args);
  } else if (n_srcs == 2 && n_dsts == 2) {
    LoopPair<E, Op, 2>(arrays, bytes, args);
  } else {
    Loop<E, Op>(arrays, bytes, args);
  }
  if (arrays.stream) EndStream();
}

constexpr int Column(RedKind kind) { return static_cast<int>(kind); }

template <class E>
constexpr void FillArithmetic(Kernel* row) {
  row[Column(RedKind::kSum)] = Reduce<E, Simple<Add>>;
  row[Column(RedKind::kProd)] = Reduce<E, Simple<Mul>>;
  row[Column(RedKind::kAvg)] = Reduce<E, Average>;
}
template <class E>
constexpr void FillOrder(Kernel* row) {
  row[Column(RedKind::kMin)] = Reduce<E, Simple<Min>>;
  row[Column(RedKind::kMax)] = Reduce<E, Simple<Max>>;
}
template <class E>
constexpr void FillBits(Kernel* row) {
  row[Column(RedKind::kBand)] = Reduce<E, Simple<And>>;
  row[Column(RedKind::kBor)] = Reduce<E, Simple<Or>>;
  row[Column(RedKind::kBxor)] = Reduce<E, Simple<Xor>>;
}
template <class E>
constexpr void FillFloat(Kernel* row) {
  FillArithmetic<E>(row);
  FillOrder<E>(row);
  row[Column(RedKind::kPremulSum)] = Reduce<E, Premultiplied>;
}
template <class E>
constexpr void FillComplex(Kernel* row) {
  FillArithmetic<E>(row);
  row[Column(RedKind::kPremulSum)] = Reduce<E, Premultiplied>;
}
// Signed integers wrap around as the unsigned ones do, with the same bits.
template <class Signed, class Unsigned>
constexpr void FillIntegers(Kernel* signed_row, Kernel* unsigned_row) {
  FillArithmetic<Plain<Unsigned>>(unsigned_row);
  FillOrder<Plain<Unsigned>>(unsigned_row);
  FillBits<Plain<Unsigned>>(unsigned_row);
  for (int i = 0; i < kNumRedKinds; ++i) signed_row[i] = unsigned_row[i];
  FillOrder<Plain<Signed>>(signed_row);
  signed_row[Column(RedKind::kAvg)] = Reduce<Plain<Signed>, Average>;
}
constexpr void FillBool(Kernel* row) {
  FillBits<Bool>(row);
  for (RedKind kind : {RedKind::kProd, RedKind::kMin})
    row[Column(kind)] = row[Column(RedKind::kBand)];
  for (RedKind kind : {RedKind::kSum, RedKind::kMax})
    row[Column(kind)] = row[Column(RedKind::kBor)];
}

[[maybe_unused]] constexpr KernelTable AllKernels() {
  KernelTable table;
  auto& rows = table.kernels;
  FillIntegers<int8_t, uint8_t>(rows[occlInt8], rows[occlUint8]);
  FillIntegers<int16_t, uint16_t>(rows[occlInt16], rows[occlUint16]);
  FillIntegers<int32_t, uint32_t>(rows[occlInt32], rows[occlUint32]);
  FillIntegers<int64_t, uint64_t>(rows[occlInt64], rows[occlUint64]);
  FillBool(rows[occlBool]);
  FillFloat<Float16>(rows[occlFloat16]);
  FillFloat<BFloat16>(rows[occlBfloat16]);
  FillFloat<Plain<float>>(rows[occlFloat32]);
  FillFloat<Plain<double>>(rows[occlFloat64]);
  FillComplex<Complex32>(rows[occlComplex32]);
  FillComplex<Complex<float>>(rows[occlComplex64]);
  FillComplex<Complex<double>>(rows[occlComplex128]);
  return table;
}

}  // namespace
}  // namespace occl::reduce

#endif  // OCCL_REDUCE_KERNELS_H_
