// Inverse trigonometric functions. Floats are computed in double. Worst errors in ulp, measured against long
// double on dense samples and all binades; of floats 0.500 (bound 0.51):
//
//   atan 1.75 (bound 2)  atan2 2.15 (bound 2.5)  asin 0.64 (bound 1.5)  acos 0.61 (bound 1.5)
//
// The polynomials interpolate in Chebyshev points; relative errors of the results 2^-58.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

/// (atan(t) / t - 1) / z, z = t^2, |t| <= tan(pi / 8).
[[gnu::always_inline]] inline double atan_curve(double z) {
  double q = 0x1.0aa87c56e3eb5p-6;
  q = q * z - 0x1.1b2058fb5da30p-5;
  q = q * z + 0x1.74d64aa665b0ap-5;
  q = q * z - 0x1.ac78ec6b8cb98p-5;
  q = q * z + 0x1.e199da4156fd9p-5;
  q = q * z - 0x1.110e858a72e28p-4;
  q = q * z + 0x1.3b1392b641b06p-4;
  q = q * z - 0x1.745d165cb83aap-4;
  q = q * z + 0x1.c71c71c2fe5d9p-4;
  q = q * z - 0x1.249249248d768p-3;
  q = q * z + 0x1.9999999999953p-3;
  return q * z - 0x1.5555555555555p-2;
}

/// (asin(t) / t - 1) / z, z = t^2, |t| <= 1/2.
[[gnu::always_inline]] inline double asin_curve(double z) {
  double q = 0x1.e529c6fce9bb4p-6;
  q = q * z - 0x1.3b416bb7d9257p-6;
  q = q * z + 0x1.406192d124629p-6;
  q = q * z + 0x1.8f193743418ffp-9;
  q = q * z + 0x1.31622469ce5adp-7;
  q = q * z + 0x1.3b49de7121487p-7;
  q = q * z + 0x1.7b027ee1dd585p-7;
  q = q * z + 0x1.c990ad3d8fdcap-7;
  q = q * z + 0x1.1c4efce23019fp-6;
  q = q * z + 0x1.6e8ba123e494cp-6;
  q = q * z + 0x1.f1c71c7a52ba3p-6;
  q = q * z + 0x1.6db6db6dac1e0p-5;
  q = q * z + 0x1.3333333333388p-4;
  return q * z + 0x1.5555555555555p-3;
}

/// count * pi / 4, count from 0 to 4.
[[gnu::always_inline]] inline DoubleDouble quarters_of_pi(double count) {
  const bool three = count == 3.0;  // The others are exact multiples.
  return {three ? 0x1.2d97c7f3321d2p+1 : count * 0x1.921fb54442d18p-1,
          three ? 0x1.a79394c9e8a0ap-54 : count * 0x1.1a62633145c07p-55};
}

/// Angle of the point (x, y), y >= 0: u is the angle of the smaller coordinate over the larger one; the
/// result is u, pi / 2 - u, pi / 2 + u or pi - u.
[[gnu::always_inline]] inline double angle_of(double y, double x) {
  const double a = magnitude(x);
  const bool steep = y > a, back = bits_of(x) >> 63 != 0;
  const double low = steep ? a : y, high = steep ? y : a;
  const double of_equals = high == 0.0 ? 0.0 : 1.0;  // Also of two infinities.
  const double unit = low == high ? of_equals : low / high;
  const bool upper = unit > 0x1.a827999fcef32p-2;  // tan(pi / 8)
  const double t = upper ? (unit - 1.0) / (unit + 1.0) : unit;
  const double rest = t * (t * t) * atan_curve(t * t);
  const bool falls = steep != back;
  const double of_unit = upper ? 1.0 : 0.0, corner = steep ? 2.0 : (back ? 4.0 : 0.0);
  const DoubleDouble base = quarters_of_pi(falls ? corner - of_unit : corner + of_unit);
  const DoubleDouble sum = two_sum(base.hi, falls ? -t : t);
  const double value = sum.hi + (sum.lo + (base.lo + (falls ? -rest : rest)));
  return (x != x) | (y != y) ? kNanF64 : value;
}

struct Atan {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    const double wide = static_cast<double>(x);
    return static_cast<T>(with_sign(angle_of(magnitude(wide), 1.0), wide));
  }
};

struct Atan2 {
  template <class T>
  [[gnu::always_inline]] static T apply(T y, T x) {
    const double wide = static_cast<double>(y);
    return static_cast<T>(with_sign(angle_of(magnitude(wide), static_cast<double>(x)), wide));
  }
};

inline constexpr DoubleDouble kPi = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};
inline constexpr DoubleDouble kHalfPi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

/// base - (t + rest)
[[gnu::always_inline]] inline double taken_from(DoubleDouble base, double t, double rest) {
  const DoubleDouble sum = two_sum(base.hi, -t);
  return sum.hi + (sum.lo + (base.lo - rest));
}

/// acos(a) = 2 asin(sqrt((1 - a) / 2)) = t + rest, 1/2 <= a.
struct Arc {
  double t;
  double rest;
};
[[gnu::always_inline]] inline Arc arc_near_one(double a) {
  const double z = (1.0 - a) * 0.5;
  const double root = __builtin_sqrt(z);
  const DoubleDouble square = two_product(root, root);
  const double lost = ((z - square.hi) - square.lo) / (root + root);
  const double rest = root * z * asin_curve(z) + (root > 0.0 ? lost : 0.0);
  return {root + root, rest + rest};
}

struct Asin {
  template <class T>
  [[gnu::always_inline]] static T apply(T value) {
    const double x = static_cast<double>(value);
    const double a = magnitude(x);
    const Arc arc = arc_near_one(a);
    const double near = a + a * (a * a) * asin_curve(a * a);
    const double result = a <= 0.5 ? near : taken_from(kHalfPi, arc.t, arc.rest);
    return static_cast<T>(with_sign(result, x));
  }
};

struct Acos {
  template <class T>
  [[gnu::always_inline]] static T apply(T value) {
    const double x = static_cast<double>(value);
    const double a = magnitude(x);
    const Arc arc = arc_near_one(a);
    const double near = taken_from(kHalfPi, x, x * (x * x) * asin_curve(x * x));
    const double far = x > 0.0 ? arc.t + arc.rest : taken_from(kPi, arc.t, arc.rest);
    return static_cast<T>(a <= 0.5 ? near : far);
  }
};

}  // namespace

constexpr ElementwiseKernels kAsinKernels = kernels_of<Asin, ElementwiseOp::kAsin>();
constexpr ElementwiseKernels kAcosKernels = kernels_of<Acos, ElementwiseOp::kAcos>();
constexpr ElementwiseKernels kAtanKernels = kernels_of<Atan, ElementwiseOp::kAtan>();
constexpr ElementwiseKernels kAtan2Kernels = kernels_of<Atan2, ElementwiseOp::kAtan2>();

}  // namespace popsr::kernels
