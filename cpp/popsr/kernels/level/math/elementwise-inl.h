// Elementwise operations that need no polynomial, as structs for the loops of loops-inl.h, and the loops that
// take scalars or give a remainder.
#pragma once

#include "popsr/kernels/level/simd/loops-inl.h"

namespace popsr::kernels {
namespace {

// --- integers
// ------------------------------------------------------------------------------------------------------
// Arithmetic wraps: it runs in an unsigned word of at least 32 bits and is cut to T.

template <class T>
[[gnu::always_inline]] inline T wrap_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (Traits<T>::kSigned) {
    if (b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<Word<T>>(a));  // lowest / -1 wraps.
  }
  return static_cast<T>(a / b);
}

/// By repeated squaring. A negative exponent gives the truncated 1 / a^|b|: 0 but for a = 1 and a = -1 (and a
/// = 0, as x / 0 = 0).
template <class T>
inline T wrap_power(T a, T b) {
  if (b < 0) {
    if (a == 1) return 1;
    if (a == static_cast<T>(-1)) return (b & 1) != 0 ? a : static_cast<T>(1);
    return 0;
  }
  Word<T> base = static_cast<Word<T>>(a);
  Word<T> result = 1;
  for (Word<T> rest = static_cast<Word<T>>(b); rest != 0; rest >>= 1) {
    if ((rest & 1) != 0) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

// --- operations
// ----------------------------------------------------------------------------------------------------

template <class T>
struct Add {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a + b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) + static_cast<Word<T>>(b));
  }
};

template <class T>
struct Subtract {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a - b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) - static_cast<Word<T>>(b));
  }
};

template <class T>
struct Multiply {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a * b;
    else
      return static_cast<T>(static_cast<Word<T>>(a) * static_cast<Word<T>>(b));
  }
};

template <class T>
struct Divide {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat)
      return a / b;
    else
      return wrap_divide(a, b);
  }
};

template <class T>
struct IntegerPower {
  static T apply(T a, T b) { return wrap_power(a, b); }
};

/// Equal floats differ in the sign of zero only: "and" makes max(-0, +0) = +0, "or" makes min(-0, +0) = -0.
template <class T>
struct Maximum {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat) {
      const T both = from_bits(bits_of(a) & bits_of(b));
      const T ordered = a > b ? a : (a == b ? both : b);
      return a != a ? a : ordered;
    } else {
      return a > b ? a : b;
    }
  }
};

template <class T>
struct Minimum {
  [[gnu::always_inline]] static T apply(T a, T b) {
    if constexpr (Traits<T>::kFloat) {
      const T both = from_bits(bits_of(a) | bits_of(b));
      const T ordered = a < b ? a : (a == b ? both : b);
      return a != a ? a : ordered;
    } else {
      return a < b ? a : b;
    }
  }
};

template <class T>
struct Negate {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return -a;
    else
      return static_cast<T>(0 - static_cast<Word<T>>(a));
  }
};

template <class T>
struct Absolute {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (Traits<T>::kFloat)
      return magnitude(a);
    else
      return a < 0 ? Negate<T>::apply(a) : a;
  }
};

template <class T>
struct Sqrt {
  [[gnu::always_inline]] static T apply(T a) {
    if constexpr (sizeof(T) == sizeof(float))
      return __builtin_sqrtf(a);
    else
      return __builtin_sqrt(a);
  }
};

template <class T>
struct Rsqrt {
  [[gnu::always_inline]] static T apply(T a) { return static_cast<T>(1) / Sqrt<T>::apply(a); }
};

template <class T>
struct Relu {
  [[gnu::always_inline]] static T apply(T a) {
    const T positive = a > 0 ? a : static_cast<T>(0);
    return a != a ? a : positive;
  }
};

template <class T>
struct ReluGrad {
  [[gnu::always_inline]] static T apply(T x, T dy) { return x > 0 ? dy : static_cast<T>(0); }
};

template <class T>
struct TanhGrad {
  [[gnu::always_inline]] static T apply(T y, T dy) { return dy * (static_cast<T>(1) - y * y); }
};

/// NaN where x is NaN, which has no sign.
template <class T>
struct AbsGrad {
  [[gnu::always_inline]] static T apply(T x, T dy) {
    const T at_zero_or_nan = x == 0 ? static_cast<T>(0) : x;
    const T downhill = x < 0 ? -dy : at_zero_or_nan;
    return x > 0 ? dy : downhill;
  }
};

template <class T>
struct EqualMask {
  [[gnu::always_inline]] static T apply(T a, T b) { return a == b ? static_cast<T>(1) : static_cast<T>(0); }
};

// --- loops with scalars or a remainder
// ---------------------------------------------------------------------------

/// Scalars are doubles; an integer type takes them truncated and saturated.
template <class T>
inline T scalar_as(double value) {
  if constexpr (Traits<T>::kFloat) {
    return static_cast<T>(value);
  } else {
    const double limit = static_cast<double>(1ULL << (8 * sizeof(T) - (Traits<T>::kSigned ? 2 : 1))) * 2.0;
    if (value >= limit) return highest_integer<T>();
    if (value <= (Traits<T>::kSigned ? -limit : 0.0)) return lowest_integer<T>();
    return value == value ? static_cast<T>(value) : static_cast<T>(0);
  }
}

template <class T>
void scale_loop(void* hi, void*, const void* const* in, std::int64_t n, const double* p) {
  const T* x = static_cast<const T*>(in[0]);
  T* out = static_cast<T*>(hi);
  const T factor = scalar_as<T>(p[0]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = Multiply<T>::apply(factor, x[i]);
}

/// The two terms of an addition-like operation; p as in EwFn.
template <class T>
struct PlainTerms {
  explicit PlainTerms(const double*) {}
  [[gnu::always_inline]] T first(T a) const { return a; }
  [[gnu::always_inline]] T second(T b) const { return b; }
};
template <class T>
struct NegatedTerms {
  explicit NegatedTerms(const double*) {}
  [[gnu::always_inline]] T first(T a) const { return a; }
  [[gnu::always_inline]] T second(T b) const { return Negate<T>::apply(b); }
};
template <class T>
struct ScaledTerms {
  T alpha, beta;
  explicit ScaledTerms(const double* p) : alpha(scalar_as<T>(p[0])), beta(scalar_as<T>(p[1])) {}
  [[gnu::always_inline]] T first(T a) const { return Multiply<T>::apply(alpha, a); }
  [[gnu::always_inline]] T second(T b) const { return Multiply<T>::apply(beta, b); }
};

/// hi = first + second, lo = the exact remainder (0 for integers).
template <class T, class Terms>
void sum_loop(void* hi, void* lo, const void* const* in, std::int64_t n, const double* p) {
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[1]);
  T* out = static_cast<T*>(hi);
  T* rest = static_cast<T*>(lo);
  const Terms terms(p);
  if (rest == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] = Add<T>::apply(terms.first(x[i]), terms.second(y[i]));
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T a = terms.first(x[i]);
    const T b = terms.second(y[i]);
    const T sum = Add<T>::apply(a, b);
    out[i] = sum;
    if constexpr (Traits<T>::kFloat)
      rest[i] = sum_residual(sum, a, b);
    else
      rest[i] = 0;
  }
}

}  // namespace
}  // namespace popsr::kernels
