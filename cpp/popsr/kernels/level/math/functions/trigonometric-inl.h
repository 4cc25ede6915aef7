// sin and cos: x = n pi/2 + r with |r| <= pi/4 (a little more), a polynomial in r, and the quadrant n mod 4.
//
// Below 2^20 the reduction subtracts n pi/2 in four pieces (Cody and Waite), branch-free; their products with
// n are exact. Beyond, x 2/pi mod 4 is an integer product with the bits of 2/pi that matter (Payne and
// Hanek). The polynomials of double are fdlibm's (k_sin.c, k_cos.c); float's interpolate in Chebyshev
// points, relative error 2^-34, and run in double.
#pragma once

#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr double kTrigNear = 0x1p20;

/// Reduced argument r = hi + lo, and n modulo 2^52.
struct Reduced {
  double hi;
  double lo;
  std::uint64_t quadrant;
};

/// Reduces |x| < 2^20.
[[gnu::always_inline]] inline Reduced reduce_near(double x) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer in the low bits.
  const double shifted = x * 0x1.45f306dc9c883p-1 + magic;
  const double n = shifted - magic;
  // Pieces of 33 bits each, then 53: n has 20 bits, so only the last product rounds.
  const double first = x - n * 0x1.921fb54400000p+0;
  const DoubleDouble second = two_sum(first, -(n * 0x1.0b4611a600000p-34));
  const DoubleDouble third = two_sum(second.hi, -(n * 0x1.3198a2e000000p-69));
  const DoubleDouble r = fast_two_sum(third.hi, (second.lo + third.lo) - n * 0x1.b839a252049c1p-104);
  return {r.hi, r.lo, bits_of(shifted) - bits_of(magic)};
}

/// Sine (cosine) of the reduced argument hi + lo.
[[gnu::always_inline]] inline double sin_kernel(double hi, double lo) {
  const double z = hi * hi;
  const double v = z * hi;
  double q = 1.58969099521155010221e-10;
  q = q * z - 2.50507602534068634195e-08;
  q = q * z + 2.75573137070700676789e-06;
  q = q * z - 1.98412698298579493134e-04;
  q = q * z + 8.33333333332248946124e-03;
  return hi - ((z * (0.5 * lo - v * q) - lo) - v * -1.66666666666666324348e-01);
}
[[gnu::always_inline]] inline double cos_kernel(double hi, double lo) {
  const double z = hi * hi;
  double q = -1.13596475577881948265e-11;
  q = q * z + 2.08757232129817482790e-09;
  q = q * z - 2.75573143513906633035e-07;
  q = q * z + 2.48015872894767294178e-05;
  q = q * z - 1.38888888888741095749e-03;
  q = q * z + 4.16666666666666019037e-02;
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * (z * q) - hi * lo));
}

/// Variants for results that are rounded to float.
[[gnu::always_inline]] inline double sin_kernel_f32(double r) {
  const double z = r * r;
  double q = 0x1.6dbbee1f24647p-19;
  q = q * z - 0x1.a013a11619d1bp-13;
  q = q * z + 0x1.11110dea5e8c0p-7;
  q = q * z - 0x1.555555545c0f8p-3;
  return r + r * z * q;
}
[[gnu::always_inline]] inline double cos_kernel_f32(double r) {
  const double z = r * r;
  double q = -0x1.2522e6d930e5bp-22;
  q = q * z + 0x1.a015c02820885p-16;
  q = q * z - 0x1.6c16bf51b0df9p-10;
  q = q * z + 0x1.555555550225fp-5;
  return (1.0 - 0.5 * z) + z * z * q;
}

/// Sine at an angle of `quadrant` right angles more; cos(x) is sin(x + pi/2).
[[gnu::always_inline]] inline double turned(double sine, double cosine, std::uint64_t quadrant) {
  const std::uint64_t odd = 0 - (quadrant & 1U);
  const std::uint64_t chosen = (bits_of(cosine) & odd) | (bits_of(sine) & ~odd);
  return from_bits(chosen ^ ((quadrant & 2U) << 62));
}

template <int kQuarter>
[[gnu::always_inline]] inline double trig_of(const Reduced& r) {
  return turned(sin_kernel(r.hi, r.lo), cos_kernel(r.hi, r.lo), r.quadrant + kQuarter);
}

/// Sine (kQuarter 0) or cosine (kQuarter 1). sin(-0) = -0, which the reduction loses.
template <int kQuarter>
[[gnu::always_inline]] inline double trig_near(double x) {
  const double result = trig_of<kQuarter>(reduce_near(x));
  return kQuarter == 0 && x == 0.0 ? x : result;
}
template <int kQuarter>
[[gnu::always_inline]] inline float trig_near(float value) {
  const double x = static_cast<double>(value);
  const Reduced r = reduce_near(x);
  const double result = turned(sin_kernel_f32(r.hi), cos_kernel_f32(r.hi), r.quadrant + kQuarter);
  return static_cast<float>(kQuarter == 0 && x == 0.0 ? x : result);
}

/// Limit below which trig_near_bf16 rounded to bfloat16 is the exact sine or cosine rounded to float and
/// then to bfloat16; tests_cpp/kernels/test_bf16.cpp compares all of them.
inline constexpr float kTrigNearBf16 = 512.0F;

/// Sine or cosine of a bfloat16, in float: pi/2 in pieces of 15, 15 and 24 bits; the first two have exact
/// products with n. The polynomials are from Cephes (sinf.c).
template <int kQuarter>
[[gnu::always_inline]] inline float trig_near_bf16(float x) {
  const float magic = 12582912.0F;
  const float shifted = x * 0x1.45f306p-1F + magic;
  const float n = shifted - magic;
  const float r = ((x - n * 0x1.921cp+0F) - n * 0x1.daa0p-15F) - n * 0x1.10b462p-30F;
  const float z = r * r;
  float s = -1.9515295891E-4F;
  s = s * z + 8.3321608736E-3F;
  s = s * z - 1.6666654611E-1F;
  const float sine = (s * z + 1.0F) * r;
  float c = 2.443315711809948E-5F;
  c = c * z - 1.388731625493765E-3F;
  c = c * z + 4.166664568298827E-2F;
  const float cosine = (c * z - 0.5F) * z + 1.0F;
  const std::uint32_t quadrant = bits_of(shifted) + kQuarter;
  const std::uint32_t odd = 0 - (quadrant & 1U);
  return from_bits(((bits_of(cosine) & odd) | (bits_of(sine) & ~odd)) ^ ((quadrant & 2U) << 30));
}

}  // namespace
}  // namespace popsr::kernels
