// Operations on doubles without error: every result is the unevaluated sum of a few doubles.
//
// Error-free transformations hold while nothing overflows or underflows. Sums never underflow; factors are
// kept within 2^-300 .. 2^300 (2^-200 .. 2^200 if there is a quotient) and addends below 2^1000. Elements
// outside are marked, and round_exactly redoes them.
#pragma once

#include "popsr/kernels/level/round/exact/sr_bracket-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

namespace popsr::kernels {
namespace {

/// Exact product a * b, for factors in range: the same two numbers with and without fused multiply-add.
[[gnu::always_inline]] inline DoubleDouble exact_product(double a, double b) {
#if defined(__FMA__)
  const double product = a * b;
  return {product, __builtin_fma(a, b, -product)};
#else
  return two_product(a, b);
#endif
}

/// Flag: 1 if the factor is neither 0 nor within 2^-range .. 2^range.
template <int kRange>
[[gnu::always_inline]] inline std::uint64_t out_of_range(double factor) {
  constexpr std::uint64_t kLow = static_cast<std::uint64_t>(1023 - kRange) << 52;
  constexpr std::uint64_t kWidth = static_cast<std::uint64_t>(2 * kRange) << 52;
  const std::uint64_t a = bits_of(magnitude(factor));
  return (a - kLow > kWidth ? 1 : 0) & nonzero_64(a);
}
[[gnu::always_inline]] inline std::uint64_t too_large(double addend) {
  return bits_of(magnitude(addend)) > bits_of(0x1p1000) ? 1 : 0;
}

/// Adds x to an expansion of kCount terms that do not overlap, least first (J. R. Shewchuk, "Adaptive
/// precision floating-point arithmetic", 1997, theorem 10).
template <int kCount>
[[gnu::always_inline]] inline void grow(double* terms, double x) {
  double sum = x;
  for (int i = 0; i < kCount; ++i) {
    const DoubleDouble s = two_sum(sum, terms[i]);
    sum = s.hi;
    terms[i] = s.lo;
  }
  terms[kCount] = sum;
}

/// Adds up from below: the total goes last, the errors stay in its place.
template <int kCount>
[[gnu::always_inline]] inline double distil(double* terms) {
  double sum = terms[0];
  for (int i = 1; i < kCount; ++i) {
    const DoubleDouble s = two_sum(terms[i], sum);
    sum = s.hi;
    terms[i - 1] = s.lo;
  }
  return sum;
}

/// Sum x + error, rounded to odd: the last bit is set if more follows.
[[gnu::always_inline]] inline double to_odd(double x, double error) {
  const std::uint64_t bits = bits_of(x);
  const std::uint64_t moves = nonzero_64(bits_of(error) & ~(1ULL << 63)) & ~bits & 1;
  const std::uint64_t inward = (bits_of(x) ^ bits_of(error)) >> 63;
  return from_bits(bits + (inward != 0 ? 0 - moves : moves));
}

/// Sum of an expansion as SrSum; `zero` has the sign of a zero sum.
template <int kCount>
[[gnu::always_inline]] inline SrSum collect(double* terms, double zero) {
  const double hi = distil<kCount>(terms);
  const double lo = distil<kCount - 1>(terms);
  double rest = terms[0];
  double error = 0.0;
  for (int i = 1; i < kCount - 2; ++i) {
    const DoubleDouble s = two_sum(terms[i], rest);
    rest = s.hi;
    error = error + s.lo;
  }
  return {hi == 0 ? zero : hi, lo, kCount > 3 ? to_odd(rest, error) : rest};
}

/// Sign of a sum that is zero: +0 but for (-0) + (-0).
[[gnu::always_inline]] inline double zero_of(double addend, double term) {
  return addend == 0 && term == 0 ? addend + term : 0.0;
}

struct SrCast {
  static constexpr int kOperands = 1;
  [[gnu::always_inline]] static SrSum apply(double x, double, double, double) { return {x, 0.0, 0.0}; }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double, double, double) {
    return magnitude(x) < kInfF64 ? 0 : 1;
  }
};

struct SrAdd {
  static constexpr int kOperands = 2;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double, double) {
    const double hi = x + y;
    return {hi, sum_residual(hi, x, y), 0.0};
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double, double) {
    return magnitude(x + y) < kInfF64 ? 0 : 1;
  }
};

struct SrSub {
  static constexpr int kOperands = 2;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double, double) {
    return SrAdd::apply(x, -y, 0.0, 0.0);
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double, double) {
    return SrAdd::hard(x, -y, 0.0, 0.0);
  }
};

struct SrMul {
  static constexpr int kOperands = 2;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double, double) {
    const DoubleDouble p = exact_product(x, y);
    return {p.hi, p.lo, 0.0};
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double, double) {
    return out_of_range<300>(x) | out_of_range<300>(y);
  }
};

struct SrFma {
  static constexpr int kOperands = 3;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double z, double) {
    const DoubleDouble p = exact_product(x, y);
    double terms[3] = {p.lo, p.hi};
    grow<2>(terms, z);
    return collect<3>(terms, zero_of(z, p.hi));
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double z, double) {
    return out_of_range<300>(x) | out_of_range<300>(y) | too_large(z);
  }
};

struct SrAxpy {
  static constexpr int kOperands = 2;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double, double s) {
    return SrFma::apply(s, x, y, 0.0);
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double, double s) {
    return SrFma::hard(s, x, y, 0.0);
  }
};

/// Sum x + (a + b) * c, a + b not overlapping.
[[gnu::always_inline]] inline SrSum add_product(double x, DoubleDouble ab, double c) {
  const DoubleDouble high = exact_product(ab.hi, c);
  const DoubleDouble low = exact_product(ab.lo, c);
  double terms[5] = {low.lo, low.hi};
  grow<2>(terms, high.lo);
  grow<3>(terms, high.hi);
  grow<4>(terms, x);
  return collect<5>(terms, zero_of(x, high.hi));
}

struct SrLerp {
  static constexpr int kOperands = 3;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double t, double) {
    return add_product(x, two_sum(y, -x), t);
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double t, double) {
    return out_of_range<300>(x) | out_of_range<300>(y) | out_of_range<300>(t);
  }
};

struct SrAddcmul {
  static constexpr int kOperands = 3;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double z, double s) {
    return add_product(x, exact_product(s, y), z);
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double z, double s) {
    return out_of_range<300>(s) | out_of_range<300>(y) | out_of_range<300>(z) | too_large(x);
  }
};

/// Addcdiv. The remainder of each quotient is exact, so the four quotients carry more than 200 bits and end
/// where the quotient does: an exact result is exact. The decision is the exact real result's unless |S| <
/// 2^-40 |s*y/z| and p is within 2^-90 of a multiple of 2^-64.
struct SrAddcdiv {
  static constexpr int kOperands = 3;
  [[gnu::always_inline]] static SrSum apply(double x, double y, double z, double s) {
    const double divisor = z == 0 ? 1.0 : z;
    DoubleDouble rest = exact_product(s, y);
    const double nominal = rest.hi / divisor;
    double quotients[4];
    for (double& quotient : quotients) {
      quotient = rest.hi / divisor;
      const DoubleDouble back = exact_product(quotient, divisor);
      rest = two_sum((rest.hi - back.hi) - back.lo, rest.lo);
    }
    double terms[5] = {quotients[3]};
    grow<1>(terms, quotients[2]);
    grow<2>(terms, quotients[1]);
    grow<3>(terms, quotients[0]);
    grow<4>(terms, x);
    return collect<5>(terms, zero_of(x, nominal));
  }
  [[gnu::always_inline]] static std::uint64_t hard(double x, double y, double z, double s) {
    return out_of_range<200>(s) | out_of_range<200>(y) | out_of_range<200>(z) | too_large(x) |
           (nonzero_64(bits_of(magnitude(z))) ^ 1);
  }
};

}  // namespace
}  // namespace popsr::kernels
