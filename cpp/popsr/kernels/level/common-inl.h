// Small helpers shared by the kernel files.
//
// Everything in the *-inl.h files of this folder has internal linkage on purpose: each instruction-set level
// is compiled with other flags, and a function merged by the linker across them would run the wrong
// instructions. For the same reason no std template is instantiated here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr::kernels {
namespace {

[[gnu::always_inline]] inline std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
[[gnu::always_inline]] inline std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
[[gnu::always_inline]] inline float from_bits(std::uint32_t x) { return __builtin_bit_cast(float, x); }
[[gnu::always_inline]] inline double from_bits(unsigned long x) { return __builtin_bit_cast(double, x); }
[[gnu::always_inline]] inline double from_bits(unsigned long long x) { return __builtin_bit_cast(double, x); }

[[gnu::always_inline]] inline float magnitude(float x) { return from_bits(bits_of(x) & 0x7fffffffU); }
[[gnu::always_inline]] inline double magnitude(double x) {
  return from_bits(bits_of(x) & 0x7fffffffffffffffULL);
}
[[gnu::always_inline]] inline float with_sign(float x, float sign) {
  return from_bits((bits_of(x) & 0x7fffffffU) | (bits_of(sign) & 0x80000000U));
}
[[gnu::always_inline]] inline double with_sign(double x, double sign) {
  return from_bits((bits_of(x) & 0x7fffffffffffffffULL) | (bits_of(sign) & 0x8000000000000000ULL));
}

inline constexpr float kInfF32 = __builtin_inff();
inline constexpr double kInfF64 = __builtin_inf();
inline constexpr float kNanF32 = __builtin_nanf("");
inline constexpr double kNanF64 = __builtin_nan("");

/// Facts about a compute type; Bool stores 0 or 1 in a byte.
struct Bool {
  std::uint8_t value;
};
template <class T>
struct Traits {
  static constexpr bool kFloat = false;
  static constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
};
template <>
struct Traits<float> {
  static constexpr bool kFloat = true;
  static constexpr bool kSigned = true;
};
template <>
struct Traits<double> {
  static constexpr bool kFloat = true;
  static constexpr bool kSigned = true;
};

/// Unsigned type in which integer arithmetic wraps; at least 32 bits, so that nothing is promoted to int.
template <std::size_t kSize>
struct WordOf {
  using type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using type = std::uint64_t;
};
template <class T>
using Word = typename WordOf<sizeof(T)>::type;

/// Unsigned integer of the width of an integer; other types as they are. A loop whose bits do not depend on
/// the sign of its numbers is compiled for these alone.
template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
  using type = std::uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

template <class T>
constexpr T lowest_integer() {
  if constexpr (Traits<T>::kSigned) {
    return static_cast<T>(static_cast<T>(1) << (8 * sizeof(T) - 1));
  } else {
    return 0;
  }
}
template <class T>
constexpr T highest_integer() {
  return static_cast<T>(~lowest_integer<T>());
}

/// Residual of hi = fl(a + b), exact: Dekker's Fast2Sum on the operands ordered by magnitude. Unlike
/// Knuth's 2Sum no intermediate overflows while hi is finite; if hi is not finite the residual is 0.
template <class T>
[[gnu::always_inline]] inline T sum_residual(T hi, T a, T b) {
  const bool a_first = magnitude(a) >= magnitude(b);
  const T big = a_first ? a : b;
  const T small = a_first ? b : a;
  const T lo = small - (hi - big);
  return magnitude(hi) < static_cast<T>(kInfF64) ? lo : static_cast<T>(0);
}

}  // namespace
}  // namespace popsr::kernels
