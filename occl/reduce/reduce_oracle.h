// What the kernels must compute, one element at a time, written without any of their code: values
// are handled as numbers, roundings are done with frexp and nearbyint. For tests.
#ifndef OCCL_REDUCE_REDUCE_ORACLE_H_
#define OCCL_REDUCE_REDUCE_ORACLE_H_

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "occl/reduce/reduce.h"

namespace occl::reduce::oracle {

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
T Combine(RedKind kind, T a, T b) {
  if (kind == RedKind::kProd) return Product(a, b);
  if constexpr (!kIsComplex<T>) {
    if (a != a || b != b) {
      if (kind == RedKind::kMin || kind == RedKind::kMax) return a != a ? a : b;
    }
    if (kind == RedKind::kMin) return b < a ? b : a;
    if (kind == RedKind::kMax) return b > a ? b : a;
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == RedKind::kBand) return a & b;
    if (kind == RedKind::kBor) return a | b;
    if (kind == RedKind::kBxor) return a ^ b;
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
T Accumulate(RedKind kind, const std::vector<T>& values, const ReduceArgs& args) {
  const bool scaled = kind == RedKind::kPremulSum;
  T acc{};
  for (size_t s = 0; s < values.size(); ++s) {
    T value = values[s];
    if (scaled) value = Product(value, Factor<T>(args, static_cast<int>(s)));
    acc = s == 0 ? value : Combine(kind, acc, value);
  }
  return kind == RedKind::kAvg ? Quotient(acc, args.avg_divisor) : acc;
}

// Element `index` of the result, as T's bytes.
template <class T>
T Element(RedKind kind, const std::vector<const uint8_t*>& srcs, size_t index,
          const ReduceArgs& args) {
  if constexpr (std::is_same_v<T, Boolean>) {
    int trues = 0;
    for (const uint8_t* src : srcs) trues += src[index] != 0;
    const int all = static_cast<int>(srcs.size());
    if (kind == RedKind::kBxor) return {static_cast<uint8_t>(trues % 2)};
    const bool every = kind == RedKind::kProd || kind == RedKind::kMin || kind == RedKind::kBand;
    return {static_cast<uint8_t>(every ? trues == all : trues > 0)};
  } else if constexpr (kIsSmallFloat<T>) {
    std::vector<float> values;
    for (const uint8_t* src : srcs) values.push_back(Load<T>(src + index * sizeof(T)).Value());
    return T::Nearest(Accumulate(kind, values, args));
  } else {
    std::vector<T> values;
    for (const uint8_t* src : srcs) values.push_back(Load<T>(src + index * sizeof(T)));
    return Accumulate(kind, values, args);
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
  } else {
    return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
  }
}

}  // namespace occl::reduce::oracle

#endif  // OCCL_REDUCE_REDUCE_ORACLE_H_
