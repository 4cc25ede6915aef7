// sigmoid(x) = 1 / (1 + e^-x), swish(x) = x sigmoid(x) and their derivatives.
//
// With t = e^-|x| nothing cancels: sigmoid is 1 / (1 + t) for x >= 0 and t / (1 + t) below, so that the tail
// runs into the subnormals. swish(-inf) is the limit, -0.
#pragma once

#include "popsr/kernels/level/math_f32-inl.h"
#include "popsr/kernels/level/math_f64-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
[[gnu::always_inline]] inline T sigmoid_of(T x) {
  const T t = exp_of(-magnitude(x));
  return (x < 0 ? t : static_cast<T>(1)) / (static_cast<T>(1) + t);
}

/// s (1 - s) = t / (1 + t)^2
template <class T>
[[gnu::always_inline]] inline T sigmoid_derivative(T x) {
  const T t = exp_of(-magnitude(x));
  const T sum = static_cast<T>(1) + t;
  return t / (sum * sum);
}

/// Where x e^x is zero for x = -limit, whatever the rounding.
template <class T>
inline constexpr T kSwishLimit = sizeof(T) == sizeof(float) ? static_cast<T>(120) : static_cast<T>(800);

/// e^-a as mantissa * scale1 * scale2, a <= kSwishLimit; only the last product may round a subnormal.
[[gnu::always_inline]] inline ScaledExpF32 decay(float a) { return scaled_exp(-a); }
[[gnu::always_inline]] inline ExpParts decay(double a) { return exp_parts_within(-a, 0.0); }

template <class T>
[[gnu::always_inline]] inline T swish_of(T x) {
  const bool negative = x < 0;
  const T a = magnitude(x);
  const T limited = a > kSwishLimit<T> ? kSwishLimit<T> : a;
  const auto e = decay(limited);
  const T t = e.mantissa * e.scale1 * e.scale2;
  const T quotient = (negative ? -limited : x) / (static_cast<T>(1) + t);
  const T result = negative ? quotient * e.mantissa * e.scale1 * e.scale2 : quotient;
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

}  // namespace
}  // namespace popsr::kernels
