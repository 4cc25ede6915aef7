// gelu in the tanh form, 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), and its derivative.
//
// 0.5 (1 + tanh u) = 1 / (1 + e^(-2u)) has no cancellation. For x < 0 it is t / (1 + t) with t = e^(2u) < 1,
// so that the tail runs into the subnormals instead of overflowing. gelu(-inf) is the limit, -0. Worst
// errors: gelu 0.501 ulp of float (bound 2), 2.80 of double (bound 4); the gradient 0.501 ulp of float (bound
// 1) and of double 3.4e-16 absolute for dy = 1 (bound 1e-15).
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr double kGeluLinear = 0x1.9884533d43651p+0;  // 2 sqrt(2/pi)
inline constexpr double kGeluCubic = 0x1.2444f2a4d8b4bp-4;   // 2 sqrt(2/pi) * 0.044715

/// 2u in double-double: its absolute error is the relative error of the tail.
[[gnu::always_inline]] inline DoubleDouble gelu_exponent(double x) {
  const DoubleDouble square = two_product(x, x);
  const DoubleDouble cubic = multiply({kGeluCubic, -0x1.6c843a29d1c70p-61}, square);
  const DoubleDouble linear = {kGeluLinear, -0x1.cbc0d30ebfd15p-54};
  const DoubleDouble sum = two_sum(linear.hi, cubic.hi);
  return multiply({x, 0.0}, fast_two_sum(sum.hi, sum.lo + (linear.lo + cubic.lo)));
}

[[gnu::always_inline]] inline double gelu_of(double x) {
  const double limited = magnitude(x) < 40.0 ? x : with_sign(40.0, x);  // e^(2u(40)) is beyond all limits.
  const DoubleDouble u = gelu_exponent(limited);
  const bool negative = x < 0.0;
  const ExpParts e = exp_parts(negative ? u.hi : -u.hi, negative ? u.lo : -u.lo);
  const double t = e.mantissa * e.scale1 * e.scale2;
  const double quotient = (negative ? limited : x) / (1.0 + t);
  const double result = negative ? quotient * e.mantissa * e.scale1 * e.scale2 : quotient;
  return x == -kInfF64 ? -0.0 : (x != x ? x : result);
}

/// Computes gelu in double without the double-double exponent: |2u| < 130 where a float result is neither
/// zero nor x. Steps are fused if the level can: no float is rounded to another one because of it (tested).
[[gnu::always_inline]] inline Doubles gelu_in_double(const Doubles& x) {
  const Doubles limited = at_least(x, -20.0);  // |2u(20)| < 603
  const Doubles inner = at_most(limited, 20.0);
  return limited / (1.0 + exp_fused(inner * multiply_add(-kGeluCubic, inner * inner, -kGeluLinear)));
}
[[gnu::always_inline]] inline Floats gelu_of(const Floats& x) {
  Floats out;
  for (int part = 0; part < 2; ++part) narrow_into(out, part, gelu_in_double(widened(x, part)));
  return out;
}

/// gelu'(x) = s + x s (1 - s) 2u', s = 1 / (1 + e^(-2u)), 2u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2).
[[gnu::always_inline]] inline double gelu_derivative(double x) {
  const double limited = magnitude(x) < 40.0 ? x : (x != x ? x : with_sign(40.0, x));
  const double square = limited * limited;
  const double t = exp_of(-magnitude(limited * (kGeluLinear + kGeluCubic * square)));
  const double reciprocal = 1.0 / (1.0 + t);
  const double s = x < 0.0 ? t * reciprocal : reciprocal;
  const double slope = kGeluLinear + 3.0 * kGeluCubic * square;
  return s + limited * slope * (t * reciprocal * reciprocal);
}

/// Below it e^x is zero in double.
inline constexpr double kZeroExponent = -745.1332191019412;
/// For floats: where e^exponent is subnormal, any number as small gives the same floats. NaN comes from x
/// alone.
[[gnu::always_inline]] inline Doubles gelu_derivative(const Doubles& x) {
  const Doubles limited = at_most(at_least(x, -40.0), 40.0);
  const Doubles square = limited * limited;
  const Doubles exponent = negative_magnitude(limited * (kGeluLinear + kGeluCubic * square));
  const Doubles t =
      where_at_least(exponent, kZeroExponent, exp_of_moderate(at_least(exponent, -708.0)), Doubles(0.0));
  const Doubles reciprocal = 1.0 / (1.0 + t);
  const Doubles s = where_below(x, 0.0, t * reciprocal, reciprocal);
  const Doubles slope = kGeluLinear + 3.0 * kGeluCubic * square;
  return s + limited * slope * (t * reciprocal * reciprocal);
}

struct Gelu {
  static constexpr bool kPacks = true;
  template <class F>
  [[gnu::always_inline]] static F apply(const F& x) {
    return gelu_of(x);
  }
};

/// The product in double, rounded once.
struct GeluGrad {
  static constexpr bool kPacks = true;
  [[gnu::always_inline]] static Floats apply(const Floats& x, const Floats& dy) {
    Floats out;
    for (int part = 0; part < 2; ++part)
      narrow_into(out, part, widened(dy, part) * gelu_derivative(widened(x, part)));
    return out;
  }
  template <class T>
  [[gnu::always_inline]] static T apply(T x, T dy) {
    return static_cast<T>(static_cast<double>(dy) * gelu_derivative(static_cast<double>(x)));
  }
};

}  // namespace

constexpr ElementwiseKernels kGeluKernels = kernels_of<Gelu, ElementwiseOp::kGelu>();
constexpr ElementwiseKernels kGeluGradKernels = kernels_of<GeluGrad, ElementwiseOp::kGeluGrad>();

}  // namespace popsr::kernels
