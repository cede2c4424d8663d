// What reductions must give, one element at a time, written without any code of the library: values
// are handled as numbers, roundings are done with frexp and nearbyint. For tests.
#ifndef OCCL_CONFORMANCE_ORACLE_H_
#define OCCL_CONFORMANCE_ORACLE_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "occl/api/occl.h"

namespace occl_conformance::oracle {

// Stands for a pre-multiplied sum among the reduce operations.
inline constexpr occlRedOp_t kPremulSum = occlNumOps;

struct ReduceArgs {
  const double* scales = nullptr;  // pre-multiplied sum: each source's factor; (re, im) if complex
  uint32_t avg_divisor = 1;
};

// A 16-bit float of 1 sign bit, kExponentBits and the rest mantissa.
template <int kExponentBits>
struct SmallFloat {
  uint16_t bits;
  static constexpr int kMantissaBits = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;

  float Value() const {
    const int exponent = (bits >> kMantissaBits) & ((1 << kExponentBits) - 1);
    const int mantissa = bits & ((1 << kMantissaBits) - 1);
    double value;
    if (exponent == (1 << kExponentBits) - 1) {
      value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                            : std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
      value = std::ldexp(mantissa, 1 - kBias - kMantissaBits);
    } else {
      value = std::ldexp(mantissa + (1 << kMantissaBits), exponent - kBias - kMantissaBits);
    }
    return static_cast<float>(bits >> 15 != 0 ? -value : value);
  }

  static SmallFloat Nearest(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const uint16_t infinity = ((1 << kExponentBits) - 1) << kMantissaBits;
    if (std::isnan(value)) return {static_cast<uint16_t>(infinity | 1)};
    if (std::isinf(value)) return {static_cast<uint16_t>(sign | infinity)};
    int exponent = 0;
    std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
    const int ulp_exponent = std::max(exponent - 1, 1 - kBias) - kMantissaBits;
    const double steps = std::nearbyint(std::ldexp(std::fabs(double{value}), -ulp_exponent));
    // Counting steps of the binade's ulp also carries into the next binade, and into infinity.
    const int64_t binade = static_cast<int64_t>(ulp_exponent + kMantissaBits + kBias - 1)
                           << kMantissaBits;
    const int64_t magnitude = value == 0 ? 0 : binade + static_cast<int64_t>(steps);
    return {static_cast<uint16_t>(sign | (magnitude < infinity ? magnitude : infinity))};
  }
};
using Half = SmallFloat<5>;
using BFloat = SmallFloat<8>;
struct ComplexHalf {
  Half real, imag;
};
struct Boolean {
  uint8_t byte;
};

template <class T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <class T>
inline constexpr bool kIsSmallFloat = false;
template <int kExponentBits>
inline constexpr bool kIsSmallFloat<SmallFloat<kExponentBits>> = true;

template <class T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
T Product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else if constexpr (kIsComplex<T>) {
    const auto ac = a.real() * b.real(), bd = a.imag() * b.imag();
    const auto ad = a.real() * b.imag(), bc = a.imag() * b.real();
    return T(ac - bd, ad + bc);
  } else {
    return a * b;
  }
}

template <class T>
T Combine(occlRedOp_t op, T a, T b) {
  if (op == occlProd) return Product(a, b);
  if constexpr (!kIsComplex<T>) {
    if (a != a || b != b) {
      if (op == occlMin || op == occlMax) return a != a ? a : b;
    }
    if (op == occlMin) return b < a ? b : a;
    if (op == occlMax) return b > a ? b : a;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == occlBand) return a & b;
    if (op == occlBor) return a | b;
    if (op == occlBxor) return a ^ b;
  }
  return Sum(a, b);
}

template <class T>
T Factor(const ReduceArgs& args, int source) {
  if constexpr (kIsComplex<T>) {
    using Real = typename T::value_type;
    return T(static_cast<Real>(args.scales[2 * source]),
             static_cast<Real>(args.scales[2 * source + 1]));
  } else {
    return static_cast<T>(args.scales[source]);
  }
}

template <class T>
T Quotient(T sum, uint32_t n) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::is_signed_v<T> ? static_cast<int64_t>(sum) / int64_t{n}
                                              : static_cast<uint64_t>(sum) / n);
  } else if constexpr (kIsComplex<T>) {
    using Real = typename T::value_type;
    return T(sum.real() / static_cast<Real>(n), sum.imag() / static_cast<Real>(n));
  } else {
    return sum / static_cast<T>(n);
  }
}

template <class T>
T Accumulate(occlRedOp_t op, const std::vector<T>& values, const ReduceArgs& args) {
  const bool scaled = op == kPremulSum;
  T acc{};
  for (size_t s = 0; s < values.size(); ++s) {
    T value = values[s];
    if (scaled) value = Product(value, Factor<T>(args, static_cast<int>(s)));
    acc = s == 0 ? value : Combine(op, acc, value);
  }
  return op == occlAvg ? Quotient(acc, args.avg_divisor) : acc;
}

// Element `index` of the result, as T's bytes.
template <class T>
T Element(occlRedOp_t op, const std::vector<const uint8_t*>& srcs, size_t index,
          const ReduceArgs& args) {
  if constexpr (std::is_same_v<T, Boolean>) {
    int trues = 0;
    for (const uint8_t* src : srcs) trues += src[index] != 0;
    const int all = static_cast<int>(srcs.size());
    if (op == occlBxor) return {static_cast<uint8_t>(trues % 2)};
    const bool every = op == occlProd || op == occlMin || op == occlBand;
    return {static_cast<uint8_t>(every ? trues == all : trues > 0)};
  } else if constexpr (kIsSmallFloat<T>) {
    std::vector<float> values;
    for (const uint8_t* src : srcs) values.push_back(Load<T>(src + index * sizeof(T)).Value());
    return T::Nearest(Accumulate(op, values, args));
  } else if constexpr (std::is_same_v<T, ComplexHalf>) {
    std::vector<std::complex<float>> values;
    for (const uint8_t* src : srcs) {
      const T half = Load<T>(src + index * sizeof(T));
      values.emplace_back(half.real.Value(), half.imag.Value());
    }
    const std::complex<float> result = Accumulate(op, values, args);
    return {Half::Nearest(result.real()), Half::Nearest(result.imag())};
  } else {
    std::vector<T> values;
    for (const uint8_t* src : srcs) values.push_back(Load<T>(src + index * sizeof(T)));
    return Accumulate(op, values, args);
  }
}

// Same bits, or both NaN.
template <class T>
bool Same(T a, T b) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return a.byte == b.byte;
  } else if constexpr (kIsSmallFloat<T>) {
    return a.bits == b.bits || (std::isnan(a.Value()) && std::isnan(b.Value()));
  } else if constexpr (kIsComplex<T>) {
    return Same(a.real(), b.real()) && Same(a.imag(), b.imag());
  } else if constexpr (std::is_same_v<T, ComplexHalf>) {
    return Same(a.real, b.real) && Same(a.imag, b.imag);
  } else {
    return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
  }
}

// Random bits, with small numbers and special values of the type mixed in.
template <class T>
void FillRandom(std::mt19937_64& rng, uint8_t* bytes, size_t count) {
  if constexpr (kIsComplex<T>) {
    FillRandom<typename T::value_type>(rng, bytes, 2 * count);
    return;
  }
  if constexpr (std::is_same_v<T, ComplexHalf>) {
    FillRandom<Half>(rng, bytes, 2 * count);
    return;
  }
  for (size_t i = 0; i < count * sizeof(T); ++i) bytes[i] = static_cast<uint8_t>(rng());
  for (size_t i = 0; i < count; ++i) {
    uint8_t* p = bytes + i * sizeof(T);
    if constexpr (std::is_floating_point_v<T>) {
      const T special[] = {T(0),
                           -T(0),
                           std::numeric_limits<T>::infinity(),
                           -std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::denorm_min(),
                           -std::numeric_limits<T>::min() / 3,
                           std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::quiet_NaN()};
      T value = Load<T>(p);
      const int pick = static_cast<int>(rng() % 32);
      if (pick < 8) value = special[pick];
      if (pick >= 12) value = static_cast<T>(static_cast<int64_t>(rng()) * 0x1p-62);
      std::memcpy(p, &value, sizeof value);
    } else if constexpr (kIsSmallFloat<T>) {
      const float value = static_cast<float>(static_cast<int64_t>(rng()) * 0x1p-62);
      const T nearest = T::Nearest(value);
      if (rng() % 2 == 0) std::memcpy(p, &nearest, sizeof nearest);
      if (rng() % 8 == 0) p[1] &= 0x80;  // denormals
    } else if constexpr (std::is_same_v<T, Boolean>) {
      if (rng() % 2 == 0) p[0] = static_cast<uint8_t>(rng() % 2);
    }
  }
}

inline bool IsComplex(occlDataType_t t) {
  return t == occlComplex32 || t == occlComplex64 || t == occlComplex128;
}

// The pairs that the contract of occlRedOp_t names.
inline bool MakesSense(occlDataType_t t, occlRedOp_t op) {
  if (t >= occlFloat8e4m3 && t <= occlBytes) return false;
  const bool is_complex = IsComplex(t);
  const bool is_float =
      t == occlFloat16 || t == occlFloat32 || t == occlFloat64 || t == occlBfloat16;
  switch (op) {
    case occlSum:
    case occlProd:
      return true;
    case occlMin:
    case occlMax:
      return !is_complex;
    case occlAvg:
      return t != occlBool;
    case occlBand:
    case occlBor:
    case occlBxor:
      return !is_complex && !is_float;
    case kPremulSum:
      return is_complex || is_float;
    default:
      return false;
  }
}

}  // namespace occl_conformance::oracle

#endif  // OCCL_CONFORMANCE_ORACLE_H_
