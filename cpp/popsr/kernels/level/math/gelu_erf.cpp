// geluerf(x) = x P(x) and its derivative P(x) + x p(x), with P the normal distribution and p its density.
//
// The upper tail Q(a) = P(-a), a = |x|, is e^(-a^2/2) H(a), and (1 + sqrt(2) a) H(a) is a smooth function of
// t = (a - K) / (a + K) that stays between 0.5 and 0.64 (Shepherd and Laframboise, "Chebyshev approximation
// of (1 + 2x) exp(x^2) erfc(x)", 1981); the polynomials interpolate it in Chebyshev points, for a < 40 with a
// relative error of 2^-55 and for floats, a < 15, of 2^-26. Below 1/2 a polynomial in x^2 gives P.
// geluerf(-inf) is the limit, -0. Worst errors in ulp: 5.43 (bound 6) of float, 4.37 (bound 5) of double;
// derivative 1.9e-7 (bound 4e-7) and 3.1e-16 (bound 1e-15) absolute.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;
inline constexpr double kDensity = 0x1.9884533d43651p-2;  // 1 / sqrt(2 pi)

/// H(a), 0 <= a <= 40.
[[gnu::always_inline]] inline double scaled_tail(double a) {
  const double t = (a - 5.0) / (a + 5.0);
  double q = -0x1.0644d10cffa2bp-32;
  q = q * t - 0x1.193592b466f5ap-30;
  q = q * t + 0x1.e810b2448bf4fp-32;
  q = q * t + 0x1.20c5b34ac34eap-27;
  q = q * t + 0x1.dc6b407b63c26p-29;
  q = q * t - 0x1.aa23c332a642bp-25;
  q = q * t - 0x1.146d6e3090fa1p-25;
  q = q * t + 0x1.3f5f8aff6863fp-22;
  q = q * t + 0x1.3ffbf87bc418dp-23;
  q = q * t - 0x1.0606e19cb666ep-19;
  q = q * t + 0x1.8250ec40dfbabp-23;
  q = q * t + 0x1.bf9b2ff174755p-17;
  q = q * t - 0x1.18f8e8de40c16p-16;
  q = q * t - 0x1.3fa706d58f8e7p-14;
  q = q * t + 0x1.28a1819093a84p-12;
  q = q * t - 0x1.76224aa802e95p-15;
  q = q * t - 0x1.429a5a6ff9ac8p-9;
  q = q * t + 0x1.4e860d6a658aep-7;
  q = q * t - 0x1.9c86836551d0cp-6;
  q = q * t + 0x1.6bb7292c70d29p-5;
  q = q * t - 0x1.d43f36c028723p-5;
  q = q * t + 0x1.86567c44c3b75p-5;
  q = q * t - 0x1.12d6bf7985a1dp-8;
  q = q * t - 0x1.1eef47981a4a3p-4;
  q = q * t + 0x1.3ddc3d8fef7c6p-1;
  return q / (1.0 + kSqrt2 * a);
}

/// Float variant, for 1/2 <= a <= 15.
[[gnu::always_inline]] inline float scaled_tail(float a) {
  const float t = (a - 4.0F) / (a + 4.0F);
  float q = 3.539174824e-05F;
  q = q * t + 9.726550763e-04F;
  q = q * t - 7.779005169e-04F;
  q = q * t - 7.265376281e-03F;
  q = q * t + 2.891173008e-02F;
  q = q * t - 5.832086249e-02F;
  q = q * t + 7.014632900e-02F;
  q = q * t - 3.172105157e-02F;
  q = q * t - 6.617824310e-02F;
  q = q * t + 6.284778784e-01F;
  return q / (1.0F + 1.41421356F * a);
}

/// (P(x) - 1/2) / x for |x| < 1/2, from z = x^2: interpolated in Chebyshev points.
[[gnu::always_inline]] inline double slope_at_zero(double z) {
  double q = -0x1.4f2b66e4c7b44p-25;
  q = q * z + 0x1.65100cd621464p-21;
  q = q * z - 0x1.3ce75f806f85dp-17;
  q = q * z + 0x1.e42b075001d50p-14;
  q = q * z - 0x1.37403f65858b8p-10;
  q = q * z + 0x1.46d042976303ap-7;
  q = q * z - 0x1.1058377e2cebbp-4;
  return q * z + kDensity;
}

[[gnu::always_inline]] inline float slope_at_zero(float z) {
  float q = -0x1.28899bp-10F;
  q = q * z + 0x1.468754p-7F;
  q = q * z - 0x1.1057c4p-4F;
  return q * z + 0x1.988454p-2F;
}

/// |x|, at most where the tail times |x| is zero whatever the rounding.
template <class T>
[[gnu::always_inline]] inline T limited_magnitude(T x) {
  const T limit = sizeof(T) == sizeof(float) ? static_cast<T>(15) : static_cast<T>(40);
  const T a = magnitude(x);
  return a > limit ? limit : a;
}

/// e^(-a^2/2); the square in double-double, because its absolute error is a relative one of the result.
[[gnu::always_inline]] inline ExpParts bell(double a) {
  const DoubleDouble square = two_product(a, a);
  return exp_parts_within(-0.5 * square.hi, -0.5 * square.lo);
}

[[gnu::always_inline]] inline ScaledExpF32<float> bell(float a) {
  const float high = from_bits(bits_of(a) & 0xfffff000U);  // 12 bits: the products below are exact.
  const float low = a - high;
  const float square = a * a;
  const float rest = ((high * high - square) + 2.0F * high * low) + low * low;
  const ScaledExpF32<float> e = scaled_exp(-0.5F * square);
  return {e.mantissa * (1.0F - 0.5F * rest), e.scale1, e.scale2};
}

struct GeluErf {
  template <class T>
  [[gnu::always_inline]] static T apply(T x) {
    const T a = limited_magnitude(x);
    const auto e = bell(a);
    const T tail = scaled_tail(a);
    const T one = 1;
    const T above = x * (one - tail * (e.mantissa * e.scale1 * e.scale2));
    // The scales come last: only that product may round a subnormal.
    const T below = -a * tail * e.mantissa * e.scale1 * e.scale2;
    const T half = static_cast<T>(0.5);
    const T far = x < 0 ? below : above;
    return a < half ? x * (half + x * slope_at_zero(x * x)) : far;
  }
};

/// Derivative, with S = e^(-a^2/2) (H(a) - a p(0)): S for x < 0, otherwise 1 - S.
[[gnu::always_inline]] inline double derivative(double x) {
  const double a = limited_magnitude(x);
  const ExpParts e = bell(a);
  const double slope = (scaled_tail(a) - a * kDensity) * (e.mantissa * e.scale1 * e.scale2);
  return x < 0.0 ? slope : 1.0 - slope;
}

struct GeluErfGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    return static_cast<T>(static_cast<double>(dy) * derivative(static_cast<double>(x)));
  }
};

}  // namespace

constexpr ElementwiseKernels kGeluErfKernels = kernels_of<GeluErf, ElementwiseOp::kGeluErf>();
constexpr ElementwiseKernels kGeluErfGradKernels = kernels_of<GeluErfGrad, ElementwiseOp::kGeluErfGrad>();

}  // namespace popsr::kernels
