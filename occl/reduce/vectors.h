// Vectors of the width of the path being compiled, and the operations on them.
//
// GCC's vector extension, so that one source serves every instruction set: the file that includes
// this (kernels_<path>.cc) is compiled for its set and gets the width from OCCL_VECTOR_BYTES.
// Everything is in an anonymous namespace: the same templates exist once per path.
#ifndef OCCL_REDUCE_VECTORS_H_
#define OCCL_REDUCE_VECTORS_H_

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifndef OCCL_VECTOR_BYTES
#error "include this only from kernels_<path>.cc"
#endif

namespace occl::reduce {
namespace {

inline constexpr size_t kVectorBytes = OCCL_VECTOR_BYTES;

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(OCCL_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VectorOf<T>::Type;
using Bytes = Vec<uint8_t>;

template <class T>
inline constexpr int kLanes = kVectorBytes / sizeof(T);

template <class T>
inline Vec<T> Splat(T value) {
  return value - Vec<T>{};  // x - 0 is x for all bit patterns but signalling NaN
}

inline Bytes LoadBytes(const void* p) {
  Bytes v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

inline void StoreBytes(void* p, Bytes v) { __builtin_memcpy(p, &v, sizeof v); }

// Past the caches, where the processor can; p is aligned to a vector.
inline void StreamBytes(void* p, Bytes v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif defined(__AVX__)
  _mm256_stream_si256(static_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
#else
  StoreBytes(p, v);
#endif
}
// After the last StreamBytes: they are not ordered by what orders other stores.
inline void EndStream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Two vectors of float32: the accumulator of one vector of 16-bit floats.
struct FloatPair {
  Vec<float> a, b;
};

// Interleaved real and imaginary parts.
template <class T>
struct ComplexVec {
  Vec<T> v;
};

// The accumulator of one vector of complex numbers of 16-bit floats.
struct ComplexPair {
  ComplexVec<float> a, b;
};

// The vector as one whose arithmetic wraps around: signed integers become unsigned, with the same
// bits; all others stay.
template <class V>
inline auto Wrapping(V x) {
  using T = std::remove_cvref_t<decltype(x[0])>;
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return reinterpret_cast<Vec<std::make_unsigned_t<T>>>(x);
  } else {
    return x;
  }
}

struct Add {
  template <class V>
  static V Do(V x, V y) {
    return reinterpret_cast<V>(Wrapping(x) + Wrapping(y));
  }
  template <class T>
  static ComplexVec<T> Do(ComplexVec<T> x, ComplexVec<T> y) {
    return {x.v + y.v};
  }
  static FloatPair Do(FloatPair x, FloatPair y) { return {x.a + y.a, x.b + y.b}; }
  static ComplexPair Do(ComplexPair x, ComplexPair y) { return {Do(x.a, y.a), Do(x.b, y.b)}; }
};

// Lane indices 1 0 3 2 ..., 0 0 2 2 ... and 1 1 3 3 ...
template <class I>
inline Vec<I> PairIndices(int even, int odd) {
  Vec<I> v = {};
  for (int i = 0; i < kLanes<I>; i += 2) {
    v[i] = static_cast<I>(i + even);
    v[i + 1] = static_cast<I>(i + odd);
  }
  return v;
}

struct Mul {
  template <class V>
  static V Do(V x, V y) {
    return reinterpret_cast<V>(Wrapping(x) * Wrapping(y));
  }
  static FloatPair Do(FloatPair x, FloatPair y) { return {x.a * y.a, x.b * y.b}; }
  // (xr yr - xi yi, xr yi + xi yr), each product and sum rounded.
  template <class T>
  static ComplexVec<T> Do(ComplexVec<T> x, ComplexVec<T> y) {
    using I = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    const Vec<T> re = __builtin_shuffle(x.v, PairIndices<I>(0, 0));
    const Vec<T> im = __builtin_shuffle(x.v, PairIndices<I>(1, 1));
    const Vec<T> direct = re * y.v;
    const Vec<T> crossed = im * __builtin_shuffle(y.v, PairIndices<I>(1, 0));
    Vec<I> even = {};
    for (int i = 0; i < kLanes<I>; i += 2) even[i] = -1;
    return {even ? direct - crossed : direct + crossed};
  }
  static ComplexPair Do(ComplexPair x, ComplexPair y) { return {Do(x.a, y.a), Do(x.b, y.b)}; }
};

// A NaN wins; of equal values the first stays.
struct Min {
  template <class V>
  static V Do(V x, V y) {
    return (y < x) | (y != y) ? y : x;
  }
  static FloatPair Do(FloatPair x, FloatPair y) { return {Do(x.a, y.a), Do(x.b, y.b)}; }
};
struct Max {
  template <class V>
  static V Do(V x, V y) {
    return (y > x) | (y != y) ? y : x;
  }
  static FloatPair Do(FloatPair x, FloatPair y) { return {Do(x.a, y.a), Do(x.b, y.b)}; }
};

struct And {
  template <class V>
  static V Do(V x, V y) {
    return x & y;
  }
};
struct Or {
  template <class V>
  static V Do(V x, V y) {
    return x | y;
  }
};
struct Xor {
  template <class V>
  static V Do(V x, V y) {
    return x ^ y;
  }
};

// The sum divided by n, once.
template <class V>
inline V Divide(V sum, uint32_t n) {
  using T = std::remove_cvref_t<decltype(sum[0])>;
  if constexpr (std::is_floating_point_v<T>) {
    return sum / Splat(static_cast<T>(n));
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    T lanes[kLanes<T>];
    __builtin_memcpy(lanes, &sum, sizeof sum);
    for (T& lane : lanes) lane = static_cast<T>(static_cast<Wide>(lane) / static_cast<Wide>(n));
    __builtin_memcpy(&sum, lanes, sizeof sum);
    return sum;
  }
}
template <class T>
inline ComplexVec<T> Divide(ComplexVec<T> sum, uint32_t n) {
  return {sum.v / Splat(static_cast<T>(n))};
}
inline FloatPair Divide(FloatPair sum, uint32_t n) { return {Divide(sum.a, n), Divide(sum.b, n)}; }
inline ComplexPair Divide(ComplexPair sum, uint32_t n) {
  return {Divide(sum.a, n), Divide(sum.b, n)};
}

}  // namespace
}  // namespace occl::reduce

#endif  // OCCL_REDUCE_VECTORS_H_
