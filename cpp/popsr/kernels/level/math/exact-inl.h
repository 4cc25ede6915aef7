// Comparisons, selection, rounding to integers and remainders: operations whose results are exact.
#pragma once

#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

// --- comparisons and classes: 1 or 0 in the compute type

template <class T>
struct Greater {
  [[gnu::always_inline]] static T apply(T a, T b) { return a > b ? static_cast<T>(1) : static_cast<T>(0); }
};

template <class T>
struct LogicalNot {
  [[gnu::always_inline]] static T apply(T a) { return a == 0 ? static_cast<T>(1) : static_cast<T>(0); }
};

template <class T>
struct IsNan {
  [[gnu::always_inline]] static T apply(T a) { return a != a ? static_cast<T>(1) : static_cast<T>(0); }
};

template <class T>
struct IsInf {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a) == static_cast<T>(kInfF64) ? static_cast<T>(1) : static_cast<T>(0);
    else
      return 0;
  }
};

template <class T>
struct IsFinite {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a) < static_cast<T>(kInfF64) ? static_cast<T>(1) : static_cast<T>(0);
    else
      return 1;
  }
};

// --- rounding to integers

template <class T>
struct Floor {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat)
      return a;
    else if constexpr (sizeof(T) == sizeof(float))
      return __builtin_floorf(a);
    else
      return __builtin_floor(a);
  }
};

template <class T>
struct Ceil {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (!Traits<T>::kFloat)
      return a;
    else if constexpr (sizeof(T) == sizeof(float))
      return __builtin_ceilf(a);
    else
      return __builtin_ceil(a);
  }
};

template <class T>
struct Sign {
  [[gnu::always_inline]] static T apply(T a) {
    const T not_positive = a < 0 ? static_cast<T>(-1) : static_cast<T>(0);
    return a > 0 ? static_cast<T>(1) : not_positive;
  }
};

// --- remainder: a - trunc(a / b) * b, which every format holds

/// How a binary format lays out its bits.
template <class T>
struct Layout;
template <>
struct Layout<float> {
  using Bits = std::uint32_t;
  static constexpr int kFraction = 23;
};
template <>
struct Layout<double> {
  using Bits = unsigned long long;
  static constexpr int kFraction = 52;
};

/// |x| = significand * 2^(exponent - bias), exponent >= 1; finite x.
struct Decomposed {
  std::uint64_t significand;
  int exponent;
};
template <class T>
inline Decomposed decompose(T x) {
  constexpr int kFraction = Layout<T>::kFraction;
  const std::uint64_t u = bits_of(magnitude(x));
  const std::uint64_t fraction = u & ((1ULL << kFraction) - 1);
  const int field = static_cast<int>(u >> kFraction);
  return field == 0 ? Decomposed{fraction, 1} : Decomposed{fraction | (1ULL << kFraction), field};
}

/// The float significand * 2^(exponent - bias); significand < 2^(fraction bits + 1).
template <class T>
inline T compose(std::uint64_t significand, int exponent) {
  constexpr int kFraction = Layout<T>::kFraction;
  if (significand == 0) return 0;
  const int room = __builtin_clzll(significand) - (63 - kFraction);
  const bool subnormal = room >= exponent;
  const int shift = subnormal ? exponent - 1 : room;
  const std::uint64_t field = subnormal ? 0 : static_cast<std::uint64_t>(exponent - room);
  const std::uint64_t fraction = (significand << shift) & ((1ULL << kFraction) - 1);
  return from_bits(static_cast<typename Layout<T>::Bits>((field << kFraction) | fraction));
}

/// Long division of the significands, as many bits at a time as 64 hold.
template <class T>
inline T float_remainder(T a, T b) {
  const T infinity = static_cast<T>(kInfF64);
  if (!(magnitude(a) < infinity) || b == 0 || b != b) return static_cast<T>(kNanF64);
  if (magnitude(a) < magnitude(b)) return a;
  const Decomposed x = decompose(a);
  const Decomposed y = decompose(b);
  std::uint64_t rest = x.significand % y.significand;
  constexpr int kStep = 63 - Layout<T>::kFraction;
  for (int left = x.exponent - y.exponent; left > 0 && rest != 0; left -= kStep) {
    rest = (rest << (left < kStep ? left : kStep)) % y.significand;
  }
  return with_sign(compose<T>(rest, y.exponent), a);
}

/// b == 0 gives a, so that a == (a / b) * b + remainder: x / 0 is 0 here.
template <class T>
inline T integer_remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (Traits<T>::kSigned) {
    if (b == static_cast<T>(-1)) return 0;  // lowest / -1 traps.
  }
  return static_cast<T>(a % b);
}

/// |a| - q |b| with the sign of a, q = trunc(|a| / |b|): exact for quotients below 2^29 (float, in double) or
/// 2^51, which the rounded division misses by one at most, and upwards only.
struct NearRemainder {
  [[gnu::always_inline]] static float apply(float a, float b) {
    const double x = magnitude(static_cast<double>(a));
    const double y = magnitude(static_cast<double>(b));
    const double rest = x - __builtin_trunc(x / y) * y;
    return with_sign(static_cast<float>(rest < 0.0 ? rest + y : rest), a);
  }
  [[gnu::always_inline]] static double apply(double a, double b) {
    const double y = magnitude(b);
    const DoubleDouble product = two_product(__builtin_trunc(magnitude(a) / y), y);
    const double rest = (magnitude(a) - product.hi) - product.lo;
    return with_sign(rest < 0.0 ? rest + y : rest, a);
  }
  /// False for NaN, infinities and zero divisors too.
  [[gnu::always_inline]] static bool holds(float a, float b) {
    return (magnitude(static_cast<double>(a)) < 0x1p29 * magnitude(static_cast<double>(b))) &
           (magnitude(b) < kInfF32);
  }
  [[gnu::always_inline]] static bool holds(double a, double b) {
    const double y = magnitude(b);
    return (magnitude(a) < 0x1p51 * y) & (magnitude(a) < 0x1p990) & (y > 0x1p-900) & (y < 0x1p990);
  }
};

/// The dividend is x[i] + increment; y moves by `step`.
template <class T>
void remainder_loop(T* out, const T* x, T increment, const T* y, std::int64_t step, std::int64_t n) {
  if constexpr (Traits<T>::kFloat) {
    constexpr std::int64_t kPiece = 64;
    for (std::int64_t begin = 0; begin < n; begin += kPiece) {
      const std::int64_t count = n - begin < kPiece ? n - begin : kPiece;
      T dividend[kPiece];
      T divisor[kPiece];
      T rest[kPiece];
      unsigned far = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        dividend[i] = x[begin + i] + increment;
        divisor[i] = y[(begin + i) * step];
      }
      for (std::int64_t i = 0; i < count; ++i) {
        rest[i] = NearRemainder::apply(dividend[i], divisor[i]);
        far |= NearRemainder::holds(dividend[i], divisor[i]) ? 0U : 1U;
      }
      for (std::int64_t i = 0; far != 0 && i < count; ++i) {
        if (!NearRemainder::holds(dividend[i], divisor[i]))
          rest[i] = float_remainder(dividend[i], divisor[i]);
      }
      __builtin_memcpy(out + begin, rest, static_cast<std::size_t>(count) * sizeof(T));
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = integer_remainder(Add<T>::apply(x[i], increment), y[i * step]);
    }
  }
}

template <class T>
void fmod_loop(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const T zero = static_cast<T>(-0.0);  // x + -0 is x, for x = -0 too.
  remainder_loop(static_cast<T*>(hi), static_cast<const T*>(in[0]), zero, static_cast<const T*>(in[1]), 1, n);
}

template <class T>
void increment_mod_loop(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
  const T modulus = scalar_as<T>(p[1]);
  remainder_loop(static_cast<T*>(hi), static_cast<const T*>(in[0]), scalar_as<T>(p[0]), &modulus, 0, n);
}

// --- selection

template <class T>
void select_loop(void* hi, void*, const void* const* in, std::int64_t n, const double*) {
  const T* condition = static_cast<const T*>(in[0]);
  const T* x = static_cast<const T*>(in[1]);
  const T* y = static_cast<const T*>(in[2]);
  T* out = static_cast<T*>(hi);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T a = x[i];
    const T b = y[i];
    out[i] = condition[i] != 0 ? a : b;
  }
}

template <class T>
void clip_loop(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
  const T* x = static_cast<const T*>(in[0]);
  T* out = static_cast<T*>(hi);
  const T low = scalar_as<T>(p[0]);
  const T high = scalar_as<T>(p[1]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T raised = x[i] < low ? low : x[i];
    out[i] = raised > high ? high : raised;
  }
}

template <class T>
void clip_grad_loop(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
  const T* y = static_cast<const T*>(in[0]);
  const T* dy = static_cast<const T*>(in[1]);
  T* out = static_cast<T*>(hi);
  const T low = scalar_as<T>(p[0]);
  const T high = scalar_as<T>(p[1]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T gradient = dy[i];
    out[i] = (y[i] == low) | (y[i] == high) ? static_cast<T>(0) : gradient;
  }
}

}  // namespace
}  // namespace popsr::kernels
