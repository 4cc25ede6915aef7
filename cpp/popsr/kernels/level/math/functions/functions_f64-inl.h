// exp, log, log2, tanh of double and the double-double pieces of pow and gelu: branch-free, without fused
// multiply-adds but for exp_fused. log is fdlibm's (e_log.c); the rational of tanh is Cephes' (netlib
// cephes/double); the polynomial of exp interpolates (e^r - 1 - r) / r^2 in Chebyshev points of |r| <=
// ln(2)/2, relative error of e^r 2^-61.
#pragma once

#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr double kLog2E64 = 1.44269504088896338700;
inline constexpr double kLn2High64 = 6.93147180369123816490e-01;  // 33 bits: exact times the exponent.
inline constexpr double kLn2Low64 = 1.90821492927058770002e-10;

/// Ways to compute a * b + c.
struct TwoRoundings {
  template <class F>
  [[gnu::always_inline]] static F multiply_add(const F& a, const F& b, const F& c) {
    return a * b + c;
  }
};
struct Fused {
  [[gnu::always_inline]] static Doubles multiply_add(const Doubles& a, const Doubles& b, const Doubles& c) {
    return kernels::multiply_add(a, b, c);
  }
};

/// Polynomial (e^r - 1 - r) / r^2. F: see vector_types-inl.h.
template <class Steps = TwoRoundings, class F>
[[gnu::always_inline]] inline F exp_curve(F r) {
  F q = Steps::multiply_add(F(0x1.1f7340dbc337ep-29), r, F(0x1.af4e554377204p-26));
  q = Steps::multiply_add(q, r, F(0x1.27e4db46cddd1p-22));
  q = Steps::multiply_add(q, r, F(0x1.71de01fdbf9cap-19));
  q = Steps::multiply_add(q, r, F(0x1.a01a01a6e1e2ap-16));
  q = Steps::multiply_add(q, r, F(0x1.a01a01abf85abp-13));
  q = Steps::multiply_add(q, r, F(0x1.6c16c16c162c3p-10));
  q = Steps::multiply_add(q, r, F(0x1.11111111100bep-7));
  q = Steps::multiply_add(q, r, F(0x1.5555555555556p-5));
  q = Steps::multiply_add(q, r, F(0x1.5555555555557p-3));
  return Steps::multiply_add(q, r, F(0.5));
}

/// Exponential e^(x + tail) = mantissa * scale1 * scale2; multiply in that order, only the last product may
/// round.
template <class F>
struct ScaledExpF64 {
  F mantissa;
  F scale1;
  F scale2;
};
using ExpParts = ScaledExpF64<double>;
/// Reduction x = n ln 2 + r + correction, |r| <= ln(2) / 2 and a little; n is in the low bits of `shifted`.
template <class F>
struct ReducedExponent {
  F shifted;
  F r;
  F correction;
};
inline constexpr double kExpMagic = 6755399441055744.0;  // 1.5 * 2^52
template <class F>
[[gnu::always_inline]] inline ReducedExponent<F> reduced_exponent(F x) {
  const F shifted = x * kLog2E64 + kExpMagic;
  const F n = shifted - kExpMagic;
  const F r_hi = x - n * kLn2High64;
  const F r_lo = n * kLn2Low64;
  const F r = r_hi - r_lo;
  return {shifted, r, (r_hi - r) - r_lo};
}
/// Exponential e^(r + correction) = e^r + correction e^r up to correction^2.
template <class F>
[[gnu::always_inline]] inline F exp_mantissa(F r, F correction) {
  const F curve = exp_curve(r) * (r * r);
  return 1.0 + (r + (curve + correction * (1.0 + (r + curve))));
}

/// Exponential for -800 <= x <= 710. F: see vector_types-inl.h.
template <class F>
[[gnu::always_inline]] inline ScaledExpF64<F> exp_parts_within(F x, F tail) {
  const ReducedExponent<F> reduced = reduced_exponent(x);
  const F mantissa = exp_mantissa(reduced.r, reduced.correction + tail);
  const typename WordsOf<F>::type exponent = bits_of(reduced.shifted) - bits_of(kExpMagic);
  const typename WordsOf<F>::type half = ((exponent + 2048U) >> 1) - 1024U;
  return {mantissa, from_bits((half + 1023U) << 52), from_bits((exponent - half + 1023U) << 52)};
}
/// Exponential e^x for |x| <= 708, where it is normal: the bits of exp_of with fewer steps.
template <class F>
[[gnu::always_inline]] inline F exp_of_moderate(F x) {
  const ReducedExponent<F> reduced = reduced_exponent(x);
  return from_bits(bits_of(exp_mantissa(reduced.r, reduced.correction)) + (bits_of(reduced.shifted) << 52));
}

/// Exponential e^x for |x| <= 708 with fused steps if the level has them, so with other bits: for float
/// results that are the same either way.
[[gnu::always_inline]] inline Doubles exp_fused(const Doubles& x) {
  const Doubles shifted = multiply_add(x, kLog2E64, kExpMagic);
  const Doubles n = shifted - kExpMagic;
  const Doubles r = multiply_add(n, -kLn2Low64, multiply_add(n, -kLn2High64, x));
  const Doubles mantissa = 1.0 + multiply_add(exp_curve<Fused>(r), r * r, r);
  return from_bits(bits_of(mantissa) + (bits_of(shifted) << 52));
}

[[gnu::always_inline]] inline ExpParts exp_parts(double x, double tail) {
  // Beyond overflow, and beyond underflow even of a thousand times as much.
  const bool outside = (x > 710.0) | (x < -800.0);
  const double clamped = x > 710.0 ? 710.0 : (x < -800.0 ? -800.0 : x);
  return exp_parts_within(clamped, outside ? 0.0 : tail);
}

[[gnu::always_inline]] inline double exp_of(double x) {
  const ExpParts e = exp_parts(x, 0.0);
  return e.mantissa * e.scale1 * e.scale2;
}
[[gnu::always_inline]] inline Doubles exp_of(const Doubles& x) {
  const ScaledExpF64<Doubles> e = exp_parts_within(at_least(at_most(x, 710.0), -800.0), Doubles(0.0));
  return e.mantissa * e.scale1 * e.scale2;
}

/// x = 2^exponent * (1 + fraction), 1 + fraction in [sqrt(1/2), sqrt(2)); x > 0 and finite.
struct LogParts {
  double exponent;
  double fraction;
};
[[gnu::always_inline]] inline LogParts log_parts(double x) {
  const bool small = x < 2.2250738585072014e-308;  // Subnormals are scaled by 2^54.
  const double scaled = small ? x * 18014398509481984.0 : x;
  const std::uint64_t sqrt_half = 0x3fe6a09e667f3bcdULL;
  const std::uint64_t u = bits_of(scaled) + (0x3ff0000000000000ULL - sqrt_half);
  // The exponent as a double without an integer conversion, which AVX2 lacks for 64 bits: 2^52 + k.
  const double k = from_bits((u >> 52) | 0x4330000000000000ULL) - 4503599627370496.0;
  return {k - (small ? 1077.0 : 1023.0), from_bits((u & 0x000fffffffffffffULL) + sqrt_half) - 1.0};
}

[[gnu::always_inline]] inline double log_of(double x) {
  const LogParts parts = log_parts(x);
  const double f = parts.fraction;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double w = z * z;
  const double even =
      w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f;
  const double e = parts.exponent;
  double result = e * kLn2High64 - ((half_square - (s * (half_square + (odd + even)) + e * kLn2Low64)) - f);
  result = x == kInfF64 ? x : result;
  result = x == 0.0 ? -kInfF64 : result;
  return x >= 0.0 ? result : kNanF64;
}

[[gnu::always_inline]] inline double tanh_of(double x) {
  const double a = magnitude(x);
  const double z = x * x;
  const double p = (-9.64399179425052238628E-1 * z - 9.92877231001918586564E1) * z - 1.61468768441708447952E3;
  const double q =
      ((z + 1.12811678491632931402E2) * z + 2.23548839060100448583E3) * z + 4.84406305325125486048E3;
  const double near = x + x * z * (p / q);
  const double far = 1.0 - 2.0 / (exp_of(2.0 * (a > 30.0 ? 30.0 : a)) + 1.0);
  return with_sign(a < 0.625 ? near : far, x);  // tanh(-0) = -0
}

/// Sum over k = 2 .. 13 of z^(k-2) / (2k+1): the tail of atanh(s)/s = 1 + z/3 + z^2/5 + ..., z = s^2 <
/// 0.0295.
[[gnu::always_inline]] inline double atanh_tail(double z) {
  double p = 1.0 / 27.0;
  p = p * z + 1.0 / 25.0;
  p = p * z + 1.0 / 23.0;
  p = p * z + 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  return p * z + 1.0 / 5.0;
}

/// Value log(1+f) / 2 = atanh(s), s = f / (2+f); the terms up to s^3 / 3 in double-double, the rest is
/// below 2^-12.
[[gnu::always_inline]] inline DoubleDouble half_log_fraction(double f) {
  const DoubleDouble denominator = two_sum(2.0, f);
  const double s_hi = f / denominator.hi;
  const DoubleDouble back = two_product(s_hi, denominator.hi);
  const double s_lo = (((f - back.hi) - back.lo) - s_hi * denominator.lo) / denominator.hi;
  const DoubleDouble s = {s_hi, s_lo};
  const DoubleDouble z = multiply(s, s);
  const DoubleDouble third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
  const DoubleDouble series = add_smaller(third, {z.hi * atanh_tail(z.hi), 0.0});
  const DoubleDouble rest = multiply(s, multiply(z, series));
  return add_smaller(s, rest);
}

/// Logarithm of a finite x > 0 with a relative error of about 2^-65.
[[gnu::always_inline]] inline DoubleDouble log_double_double(double x) {
  const LogParts parts = log_parts(x);
  const DoubleDouble atanh = half_log_fraction(parts.fraction);
  // k ln 2 in three parts; the first has 42 bits, so its product is exact.
  const double k = parts.exponent;
  const DoubleDouble sum = two_sum(k * 0x1.62e42fefa3800p-1, 2.0 * atanh.hi);
  return fast_two_sum(sum.hi, sum.lo + (2.0 * atanh.lo + k * 0x1.ef35793c76730p-45));
}

/// Base-2 logarithm k + log(1+f) / ln 2: exact for powers of two.
[[gnu::always_inline]] inline double log2_of(double x) {
  const LogParts parts = log_parts((x > 0.0) & (x < kInfF64) ? x : 1.0);
  const DoubleDouble two_log2_e = {0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55};
  const DoubleDouble fraction = multiply(half_log_fraction(parts.fraction), two_log2_e);
  const DoubleDouble sum = two_sum(parts.exponent, fraction.hi);
  double result = sum.hi + (sum.lo + fraction.lo);
  result = x == kInfF64 ? x : result;
  result = x == 0.0 ? -kInfF64 : result;
  return x >= 0.0 ? result : kNanF64;
}

/// Base-2 logarithm through double: the error of log(x) / ln 2 is far below half a float ulp.
[[gnu::always_inline]] inline float log2_of(float x) {
  return static_cast<float>(log_of(static_cast<double>(x)) * kLog2E64);
}

}  // namespace
}  // namespace popsr::kernels
