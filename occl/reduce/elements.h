// How each datatype is read into an accumulator (Decode) and written from one (Encode), a vector of
// storage at a time. Included by kernels.h only.
#ifndef OCCL_REDUCE_ELEMENTS_H_
#define OCCL_REDUCE_ELEMENTS_H_

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "occl/reduce/reduce.h"
#include "occl/reduce/vectors.h"

namespace occl::reduce {
namespace {

// Integers and float32, float64: accumulated as they are.
template <class T>
struct Plain {
  using Acc = Vec<T>;
  static constexpr size_t kElementBytes = sizeof(T);
  static Acc Decode(Bytes bytes) { return reinterpret_cast<Acc>(bytes); }
  static Bytes Encode(Acc acc) { return reinterpret_cast<Bytes>(acc); }
  static Acc Scale(const double* scales, int source) {
    return Splat(static_cast<T>(scales[source]));
  }
};

// Any byte but 0 is true; written as 1.
struct Bool {
  using Acc = Bytes;
  static constexpr size_t kElementBytes = 1;
  static Acc Decode(Bytes bytes) { return reinterpret_cast<Bytes>(bytes != 0) & 1; }
  static Bytes Encode(Acc acc) { return acc; }
};

template <class T>
struct Complex {
  using Acc = ComplexVec<T>;
  static constexpr size_t kElementBytes = 2 * sizeof(T);
  static Acc Decode(Bytes bytes) { return {reinterpret_cast<Vec<T>>(bytes)}; }
  static Bytes Encode(Acc acc) { return reinterpret_cast<Bytes>(acc.v); }
  static Acc Scale(const double* scales, int source) {
    Vec<T> v = {};
    for (int i = 0; i < kLanes<T>; ++i) v[i] = static_cast<T>(scales[2 * source + i % 2]);
    return {v};
  }
};

inline FloatPair SplatPair(const double* scales, int source) {
  const Vec<float> v = Splat(static_cast<float>(scales[source]));
  return {v, v};
}

// The accumulators hold the even and the odd elements, so that no element changes its lane.
struct BFloat16 {
  using Acc = FloatPair;
  static constexpr size_t kElementBytes = 2;
  static Acc Decode(Bytes bytes) {
    const Vec<uint32_t> v = reinterpret_cast<Vec<uint32_t>>(bytes);
    return {reinterpret_cast<Vec<float>>(v << 16), reinterpret_cast<Vec<float>>(v & 0xffff0000u)};
  }
  // The rounded bits, in the upper half of each lane. A NaN becomes quiet.
  static Vec<uint32_t> Round(Vec<float> f) {
    const Vec<uint32_t> v = reinterpret_cast<Vec<uint32_t>>(f);
    const Vec<uint32_t> nearest = v + 0x7fffu + ((v >> 16) & 1u);
    return f != f ? v | 0x400000u : nearest;
  }
  static Bytes EncodeExactly(Acc acc) {
    return reinterpret_cast<Bytes>((Round(acc.a) >> 16) | (Round(acc.b) & 0xffff0000u));
  }
  static Bytes Encode(Acc acc) {
#if defined(__AVX512BF16__)
    // The instruction takes denormals for zero (Intel SDM, VCVTNE2PS2BF16): those go the long way.
    constexpr int kDenormal = 0x20;
    const __mmask16 denormal = _mm512_fpclass_ps_mask(reinterpret_cast<__m512>(acc.a), kDenormal) |
                               _mm512_fpclass_ps_mask(reinterpret_cast<__m512>(acc.b), kDenormal);
    if (__builtin_expect(denormal == 0, 1)) {
      const __m512i evens_odds = reinterpret_cast<__m512i>(
          _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(acc.b), reinterpret_cast<__m512>(acc.a)));
      Vec<uint16_t> interleave = {};
      for (uint16_t i = 0; i < 32; ++i) interleave[i] = i / 2 + i % 2 * 16;
      return reinterpret_cast<Bytes>(
          _mm512_permutexvar_epi16(reinterpret_cast<__m512i>(interleave), evens_odds));
    }
#endif
    return EncodeExactly(acc);
  }
  static Acc Scale(const double* scales, int source) { return SplatPair(scales, source); }
};

// The accumulators hold the lower and the upper half of the elements.
struct Float16 {
  using Acc = FloatPair;
  static constexpr size_t kElementBytes = 2;
  static Acc Scale(const double* scales, int source) { return SplatPair(scales, source); }

#if defined(__AVX512F__)
  static Acc Decode(Bytes bytes) {
    const __m512i v = reinterpret_cast<__m512i>(bytes);
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))};
  }
  static Bytes Encode(Acc acc) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(acc.a, kNearest));
    return reinterpret_cast<Bytes>(_mm512_inserti64x4(low, _mm512_cvtps_ph(acc.b, kNearest), 1));
  }
#elif defined(__F16C__)
  static Acc Decode(Bytes bytes) {
    const __m256i v = reinterpret_cast<__m256i>(bytes);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
  }
  static Bytes Encode(Acc acc) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return reinterpret_cast<Bytes>(
        _mm256_set_m128i(_mm256_cvtps_ph(acc.b, kNearest), _mm256_cvtps_ph(acc.a, kNearest)));
  }
#else
  typedef uint16_t HalfVec __attribute__((vector_size(OCCL_VECTOR_BYTES / 2)));

  // Signed lanes: SSE2 has no unsigned comparison.
  using Ints = Vec<int32_t>;

  static Vec<float> Widen(HalfVec half) {
    const Ints h = __builtin_convertvector(half, Ints);
    const Ints rest = h & 0x7fff;
    const Ints sign = reinterpret_cast<Ints>(reinterpret_cast<Vec<uint32_t>>(h & 0x8000) << 16);
    const Ints normal = (rest << 13) + (112 << 23);
    const Ints quiet = (rest > 0x7c00) & 0x400000;
    const Ints infinite = (rest << 13) | 0x7f800000 | quiet;
    // Denormals are multiples of 2^-24; the product is exact.
    const Ints denormal =
        reinterpret_cast<Ints>(__builtin_convertvector(rest, Vec<float>) * 0x1p-24f);
    const Ints finite = rest < 0x400 ? denormal : normal;
    return reinterpret_cast<Vec<float>>(sign | (rest >= 0x7c00 ? infinite : finite));
  }
  static HalfVec Narrow(Vec<float> f) {
    const Ints v = reinterpret_cast<Ints>(f);
    const Ints sign = (v >> 16) & 0x8000, abs = v & 0x7fffffff;
    // A NaN's sum may wrap around here, so the lanes are unsigned.
    const Vec<uint32_t> rounded = reinterpret_cast<Vec<uint32_t>>(abs) +
                                  reinterpret_cast<Vec<uint32_t>>(0xfff + ((abs >> 13) & 1));
    const Ints normal = reinterpret_cast<Ints>((rounded >> 13) - (112u << 10));
    // The spacing of float32 at 1/2 is float16's denormal spacing: the addition does the rounding.
    const Ints denormal =
        reinterpret_cast<Ints>(reinterpret_cast<Vec<float>>(abs) + 0.5f) - 0x3f000000;
    const Ints nan = ((abs >> 13) & 0x3ff) | 0x7e00;
    Ints out = abs < 0x38800000 ? denormal : normal;
    out = abs >= 0x477ff000 ? Splat(0x7c00) : out;  // from 65520 on: infinity
    out = abs > 0x7f800000 ? nan : out;
    return __builtin_convertvector(out | sign, HalfVec);
  }
  static Acc Decode(Bytes bytes) {
    HalfVec halves[2];
    __builtin_memcpy(halves, &bytes, sizeof bytes);
    return {Widen(halves[0]), Widen(halves[1])};
  }
  static Bytes Encode(Acc acc) {
    const HalfVec halves[2] = {Narrow(acc.a), Narrow(acc.b)};
    return LoadBytes(halves);
  }
#endif
};

// Float16 keeps neighbours beside each other: real and imaginary parts stay interleaved.
struct Complex32 {
  using Acc = ComplexPair;
  static constexpr size_t kElementBytes = 4;
  static Acc Decode(Bytes bytes) {
    const FloatPair parts = Float16::Decode(bytes);
    return {{parts.a}, {parts.b}};
  }
  static Bytes Encode(Acc acc) { return Float16::Encode({acc.a.v, acc.b.v}); }
  static Acc Scale(const double* scales, int source) {
    const ComplexVec<float> scale = Complex<float>::Scale(scales, source);
    return {scale, scale};
  }
};

}  // namespace
}  // namespace occl::reduce

#endif  // OCCL_REDUCE_ELEMENTS_H_
