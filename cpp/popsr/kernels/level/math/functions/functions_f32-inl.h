// exp, log and tanh of float: branch-free, so that loops over them vectorise; no fused multiply-add, so that
// every level agrees. F: see vector_types-inl.h. Polynomials and the splitting of ln 2 are from Cephes (S. L.
// Moshier, netlib cephes/single). Worst errors: exponential.cpp; tests_cpp/kernels/test_math.cpp checks them.
#pragma once

#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kLn2High = 0.693359375F;  // 10 bits: products with the exponent are exact.
inline constexpr float kLn2Low = -2.12194440e-4F;

/// Exponential e^r and the integer n with x = n ln 2 + r, n as an unsigned bit pattern; |x| < 2^21.
template <class F>
struct ExpPartsF32 {
  F mantissa;
  typename WordsOf<F>::type exponent;
};
template <class F>
[[gnu::always_inline]] inline ExpPartsF32<F> exp_parts(F x) {
  const float magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits.
  const F shifted = x * kLog2E + magic;
  const F n = shifted - magic;
  const F r = (x - n * kLn2High) - n * kLn2Low;
  F q = 1.9875691500E-4F * r + 1.3981999507E-3F;
  q = q * r + 8.3334519073E-3F;
  q = q * r + 4.1665795894E-2F;
  q = q * r + 1.6666665459E-1F;
  q = q * r + 5.0000001201E-1F;
  return {(q * (r * r) + r) + 1.0F, bits_of(shifted) - bits_of(magic)};
}

/// Exponential e^x = mantissa * scale1 * scale2, -170 < x < 90: 2^n in two factors, because n reaches 128
/// and -245 and only the last product may round a subnormal.
template <class F>
struct ScaledExpF32 {
  F mantissa;
  F scale1;
  F scale2;
};
template <class F>
[[gnu::always_inline]] inline ScaledExpF32<F> scaled_exp(F x) {
  const ExpPartsF32<F> e = exp_parts(x);
  const typename WordsOf<F>::type half = ((e.exponent + 256U) >> 1) - 128U;
  return {e.mantissa, from_bits((half + 127U) << 23), from_bits((e.exponent - half + 127U) << 23)};
}

template <class F>
[[gnu::always_inline]] inline F exp_of(F x) {
  // Both limits lie beyond overflow and underflow; NaN passes.
  x = at_least(at_most(x, 89.0F), -104.0F);
  const ScaledExpF32<F> e = scaled_exp(x);
  return e.mantissa * e.scale1 * e.scale2;
}

/// Exponential of a bfloat16: rounded to bfloat16, all results equal exp_of's, with fewer steps
/// (tests_cpp/kernels/test_bf16.cpp compares them). x = 2 m ln 2 + r; the polynomial has a relative error
/// of 2^-21.
template <class F>
[[gnu::always_inline]] inline F exp_of_bf16(F x) {
  x = at_least(at_most(x, 89.0F), -104.0F);
  const float magic = 12582912.0F + 127.0F;  // The low bits are the exponent of 2^m.
  const F shifted = x * (0.5F * kLog2E) + magic;
  const F m = shifted - magic;
  const F r = (x - m * (2.0F * kLn2High)) - m * (2.0F * kLn2Low);
  F q = r * 0x1.64a0a0p-10F + 0x1.15af1cp-7F;
  q = q * r + 0x1.558d7ap-5F;
  q = q * r + 0x1.554954p-3F;
  q = q * r + 0x1.fffeeep-2F;
  q = q * r + 1.0F;
  const F scale = from_bits(bits_of(shifted) << 23);
  return (q * r + 1.0F) * scale * scale;
}

[[gnu::always_inline]] inline float log_of(float x) {
  const bool small = x < 1.17549435e-38F;  // Subnormals are scaled by 2^23.
  const float scaled = small ? x * 8388608.0F : x;
  const std::uint32_t sqrt_half = 0x3f3504f3U;
  const std::uint32_t u = bits_of(scaled) + (0x3f800000U - sqrt_half);
  const float e = static_cast<float>(static_cast<std::int32_t>(u >> 23) - (small ? 150 : 127));
  const float f = from_bits((u & 0x007fffffU) + sqrt_half) - 1.0F;  // In [sqrt(1/2) - 1, sqrt(2) - 1], exact.
  float p = 7.0376836292E-2F;
  p = p * f - 1.1514610310E-1F;
  p = p * f + 1.1676998740E-1F;
  p = p * f - 1.2420140846E-1F;
  p = p * f + 1.4249322787E-1F;
  p = p * f - 1.6668057665E-1F;
  p = p * f + 2.0000714765E-1F;
  p = p * f - 2.4999993993E-1F;
  p = p * f + 3.3333331174E-1F;
  const float square = f * f;
  const float tail = (p * f * square + e * kLn2Low) - 0.5F * square;
  float result = (f + tail) + e * kLn2High;
  result = x == kInfF32 ? x : result;
  result = x == 0.0F ? -kInfF32 : result;
  return x >= 0.0F ? result : kNanF32;
}

[[gnu::always_inline]] inline float tanh_of(float x) {
  const float a = magnitude(x);
  const float z = x * x;
  float p = -5.70498872745E-3F;
  p = p * z + 2.06390887954E-2F;
  p = p * z - 5.37397155531E-2F;
  p = p * z + 1.33314422036E-1F;
  p = p * z - 3.33332819422E-1F;
  const float near = p * z * x + x;
  const float doubled = 2.0F * (a > 20.0F ? 20.0F : a);  // tanh rounds to 1 from 9.02 on.
  const ExpPartsF32<float> e = exp_parts(doubled);
  const float exponential = e.mantissa * from_bits((e.exponent + 127U) << 23);
  const float far = 1.0F - 2.0F / (exponential + 1.0F);
  return with_sign(a < 0.625F ? near : far, x);  // tanh(-0) = -0
}

}  // namespace
}  // namespace popsr::kernels
