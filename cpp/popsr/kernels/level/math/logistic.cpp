// sigmoid(x) = 1 / (1 + e^-x), swish(x) = x sigmoid(x) and their derivatives.
//
// With t = e^-|x| nothing cancels: sigmoid is 1 / (1 + t) for x >= 0 and t / (1 + t) below, so that the tail
// runs into the subnormals. swish(-inf) is the limit, -0. Of floats, 1 + e^-x itself, scaled so that it
// overflows only where the result is zero. Worst errors in ulp: sigmoid 2.38 and 2.13 (bound 3), swish 2.31
// and 2.58 (bound 4), of float and double; derivatives 1.9e-7 (bound 4e-7) and 3.1e-16 (bound 1e-15)
// absolute.
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

[[gnu::always_inline]] inline double sigmoid_of(double x) {
  const double t = exp_of(-magnitude(x));
  return (x < 0 ? t : 1.0) / (1.0 + t);
}

/// 2^-kScale + e^-x 2^-kScale, low <= x <= high: the exponents must be normal. The
/// polynomial is exp_parts', in pairs, which wait less for each other.
template <int kScale, class F>
[[gnu::always_inline]] inline F scaled_logistic_divisor(F x, float low, float high) {
  x = at_most(at_least(x, low), high);                                 // NaN passes.
  const float magic = 12582912.0F + static_cast<float>(127 - kScale);  // As in exp_parts; low bits: exponent.
  const F shifted = magic - x * kLog2E;
  const F n = shifted - magic;
  const F r = (x + n * kLn2High) + n * kLn2Low;  // -x = n ln 2 - r
  const F square = r * r;
  const F q0 = 5.0000001201E-1F - r * 1.6666665459E-1F;
  const F q2 = 4.1665795894E-2F - r * 8.3334519073E-3F;
  const F q4 = 1.3981999507E-3F - r * 1.9875691500E-4F;
  const F q = q0 + square * (q2 + square * q4);
  const F mantissa = 1.0F - (r - square * q);
  const float scale = from_bits(static_cast<std::uint32_t>(127 - kScale) << 23);
  return scale + mantissa * from_bits(bits_of(shifted) << 23);
}

/// 1 / (1 + e^-x) is zero below -104 and one above 70.
template <class F>
[[gnu::always_inline]] inline F sigmoid_of(F x) {
  return 0x1p-24F / scaled_logistic_divisor<24>(x, -104.0F, 70.0F);
}

/// x / (1 + e^-x) is zero below -120 and x above 50.
template <class F>
[[gnu::always_inline]] inline F swish_of(F x) {
  const F limited = at_least(x, -120.0F);
  const F quotient = limited / scaled_logistic_divisor<48>(x, -120.0F, 50.0F);
  return where_above(x, 50.0F, x, quotient * 0x1p-48F);
}

/// s (1 - s) = t / (1 + t)^2
template <class T>
[[gnu::always_inline]] inline T sigmoid_derivative(T x) {
  const T t = exp_of(-magnitude(x));
  const T sum = static_cast<T>(1) + t;
  return t / (sum * sum);
}

/// The limit for which x e^x is zero at x = -limit in any rounding.
template <class T>
inline constexpr T kSwishLimit = sizeof(T) == sizeof(float) ? static_cast<T>(120) : static_cast<T>(800);

[[gnu::always_inline]] inline double swish_of(double x) {
  const bool negative = x < 0;
  const double a = magnitude(x);
  const double limited = a > kSwishLimit<double> ? kSwishLimit<double> : a;
  const ExpParts e = exp_parts_within(-limited, 0.0);  // Only the last product may round a subnormal.
  const double t = e.mantissa * e.scale1 * e.scale2;
  const double quotient = (negative ? -limited : x) / (1.0 + t);
  const double result = negative ? quotient * e.mantissa * e.scale1 * e.scale2 : quotient;
  return x != x ? x : result;
}

/// s + x s (1 - s)
template <class T>
[[gnu::always_inline]] inline T swish_derivative(T x) {
  const T a = magnitude(x);
  const T limited = a > kSwishLimit<T> ? with_sign(kSwishLimit<T>, x) : x;
  const T t = exp_of(-magnitude(limited));
  const T reciprocal = static_cast<T>(1) / (static_cast<T>(1) + t);
  const T s = x < 0 ? t * reciprocal : reciprocal;
  return s + limited * (t * reciprocal * reciprocal);
}

struct Sigmoid {
  static constexpr bool kPacks = true;
  template <class F>
  [[gnu::always_inline]] static F apply(const F& x) {
    return sigmoid_of(x);
  }
};

struct SigmoidGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    return dy * sigmoid_derivative(x);
  }
};

struct Swish {
  static constexpr bool kPacks = true;
  template <class F>
  [[gnu::always_inline]] static F apply(const F& x) {
    return swish_of(x);
  }
};

struct SwishGrad {
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    return dy * swish_derivative(x);
  }
};

}  // namespace

constexpr ElementwiseKernels kSigmoidKernels = kernels_of<Sigmoid, ElementwiseOp::kSigmoid>();
constexpr ElementwiseKernels kSigmoidGradKernels = kernels_of<SigmoidGrad, ElementwiseOp::kSigmoidGrad>();
constexpr ElementwiseKernels kSwishKernels = kernels_of<Swish, ElementwiseOp::kSwish>();
constexpr ElementwiseKernels kSwishGradKernels = kernels_of<SwishGrad, ElementwiseOp::kSwishGrad>();

}  // namespace popsr::kernels
