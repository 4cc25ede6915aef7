// pow with the special cases of IEEE 754-2019 section 9.2.1, and its gradients. Worst errors in ulp: float
// 0.501 (bound 1), double 0.81 (bound 2). The gradients are products of rounded factors: about one ulp more
// than pow and log.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

/// Power by repeated squaring. A negative exponent gives the truncated 1 / a^|b|: 0 except for a = 1 and a
/// = -1 (and a = 0, as x / 0 = 0).
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

/// Replaces the raw power of |x| by the results that IEEE 754 requires for zero, infinite, negative and
/// unit operands.
[[gnu::always_inline]] inline double pow_special_cases(double raw, double x, double y) {
  // Conditions combine with & and |: && would be control flow, which keeps the loop from vectorising.
  const double a = magnitude(x);
  const bool finite_base = a < kInfF64;
  const bool infinite_y = magnitude(y) == kInfF64;
  const bool integer = __builtin_rint(y) == y;
  const double half_y = 0.5 * y;
  const bool odd = integer & (__builtin_rint(half_y) != half_y) & !infinite_y;
  double result = (x < 0.0) & finite_base & !integer ? kNanF64 : raw;
  const double at_zero = y < 0.0 ? kInfF64 : 0.0;
  const double at_infinity = y < 0.0 ? 0.0 : kInfF64;
  result = a == 0.0 ? at_zero : result;
  result = finite_base ? result : at_infinity;
  const double at_infinite_y = ((a > 1.0) ^ (y > 0.0)) ? 0.0 : kInfF64;
  result = infinite_y ? (a == 1.0 ? 1.0 : at_infinite_y) : result;
  result = with_sign(result, odd ? x : 1.0);
  result = (x != x) | (y != y) ? kNanF64 : result;
  return (x == 1.0) | (y == 0.0) ? 1.0 : result;
}

/// Finite stand-in where the special cases decide, so that the main path gets ordinary operands. |y| >=
/// 2^66 overflows or underflows for every |x| != 1.
[[gnu::always_inline]] inline double usual_base(double x) {
  const double a = magnitude(x);
  return (a > 0.0) & (a < kInfF64) ? a : 1.0;
}
[[gnu::always_inline]] inline double usual_exponent(double y) {
  return magnitude(y) < 0x1p66 ? y : with_sign(0x1p66, y);
}

[[gnu::always_inline]] inline double pow_of(double x, double y) {
  const DoubleDouble log = log_double_double(usual_base(x));
  const double exponent = usual_exponent(y);
  const DoubleDouble product = two_product(exponent, log.hi);
  const ExpParts e = exp_parts(product.hi, product.lo + exponent * log.lo);
  return pow_special_cases(e.mantissa * e.scale1 * e.scale2, x, y);
}

/// Through double: y log|x| has an error of a few 2^-53 * 150, far below half a float ulp.
[[gnu::always_inline]] inline float pow_of(float x, float y) {
  const double base = static_cast<double>(x);
  const double exponent = static_cast<double>(y);
  const double raw = exp_of(usual_exponent(exponent) * log_of(usual_base(base)));
  return static_cast<float>(pow_special_cases(raw, base, exponent));
}

struct Pow {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T y) {
    if constexpr (Traits<T>::kFloat)
      return pow_of(x, y);
    else
      return wrap_power(x, y);
  }
};

/// e - 1 is rounded as in the formula's own arithmetic.
struct PowGradBase {
  template <class T>
  [[gnu::always_inline]] static T apply(T t, T e) {
    return e == 0 ? static_cast<T>(0) : e * pow_of(t, e - static_cast<T>(1));
  }
};

struct PowGradExponent {
  template <class T>
  [[gnu::always_inline]] static T apply(T t, T y) {
    return t == 0 ? static_cast<T>(0) : y * log_of(t);
  }
};

}  // namespace

constexpr ElementwiseKernels kPowKernels = kernels_of<Pow, ElementwiseOp::kPow>();
constexpr ElementwiseKernels kPowGradBaseKernels = kernels_of<PowGradBase, ElementwiseOp::kPowGradBase>();
constexpr ElementwiseKernels kPowGradExponentKernels =
    kernels_of<PowGradExponent, ElementwiseOp::kPowGradExponent>();

}  // namespace popsr::kernels
