// Vectorised rounding of the common calls: the first bits of U are compared with the first bits of p.
// Elements that those bits cannot decide (they are equal, or an exponent is near the largest) are left to
// round_exactly.
#pragma once

#include "popsr/kernels/level/convert/formats-inl.h"
#include "popsr/kernels/level/simd/double_double-inl.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

/// Bits of a result. difference == 0: the word of U equals the known bits of p. size: the magnitude of S,
/// beyond the limit of its format also for infinities and NaNs.
template <class Word>
struct SrGuess {
  Word bits;
  Word difference;
  Word size;
};

// Truncated sums: results of at most 16 bits need only the float of S rounded towards zero.

#if defined(__SSE__)

/// Scope in which this thread rounds sums towards zero.
class TowardZero {
 public:
  TowardZero() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x6000U); }
  ~TowardZero() { _mm_setcsr(saved_); }
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;

 private:
  unsigned saved_;
};
[[gnu::always_inline]] inline float truncated_sum(float x, float y) { return x + y; }

/// Flag: 1 if the truncated sum t is not x + y. Then |t| < |x + y|, and t - x, truncated, is not y.
[[gnu::always_inline]] inline std::uint32_t has_rest(float t, float x, float y) {
  return t - x != y ? 1U : 0U;
}

#else

class TowardZero {
 public:
  TowardZero() {}
  ~TowardZero() {}
};
[[gnu::always_inline]] inline float truncated_sum(float x, float y) {
  const float hi = x + y;
  const float lo = sum_residual(hi, x, y);
  const bool inward = lo != 0 && (bits_of(lo) ^ bits_of(hi)) >> 31 != 0;
  return inward ? from_bits(bits_of(hi) - 1) : hi;
}
[[gnu::always_inline]] inline std::uint32_t has_rest(float, float x, float y) {
  return sum_residual(x + y, x, y) != 0 ? 1U : 0U;
}

#endif

// Magnitudes with a residual, in whole numbers

/// First guess of one element, as magnitude bits of the format, and whether only the slow path can decide it.
struct Guess {
  std::uint32_t bits;
  std::uint32_t tie;
};

/// Magnitude on the grid of a 16-bit format: the neighbour towards zero, the first 16 bits of p, the bits
/// of them that were compared, and whether something is left below.
struct Split {
  std::uint32_t toward;
  std::uint32_t p;
  std::uint32_t known;
  std::uint32_t rest;

  [[gnu::always_inline]] std::uint32_t off_grid() const { return nonzero(p) | rest; }
  [[gnu::always_inline]] Guess guess(std::uint32_t word) const {
    return {toward + less(word, p), (nonzero((word ^ p) & known) ^ 1U) & rest};
  }
};

struct GuessBf16 {
  [[gnu::always_inline]] static Split split(Magnitude m) {
    return {m.bits >> 16, m.bits & 0xffffU, 0xffffU, m.inexact};
  }
  [[gnu::always_inline]] static Guess guess(Magnitude m, std::uint32_t word) {
    const Guess guess = split(m).guess(word);
    return {m.bits > kInfBits ? 0x7fc0U : guess.bits, guess.tie};
  }
};

struct GuessF16 {
  [[gnu::always_inline]] static Split split(Magnitude m) {
    const std::uint32_t a = m.bits;
    // Below 2^-14 the grid is 2^-24, whatever the exponent. Selected by mask: branches on one condition would
    // be threaded into control flow.
    const std::uint32_t tiny = 0U - less(a, 0x38800000U);
    // First 16 bits of p. Normal: 13 bits of the significand. Subnormal: fraction of x / 2^-24, exact in
    // float.
    const float scaled = from_bits(a & tiny) * 0x1p24F;
    const std::int32_t whole = static_cast<std::int32_t>(scaled);
    const float fraction = (scaled - static_cast<float>(whole)) * 65536.0F;
    const std::int32_t p_tiny = static_cast<std::int32_t>(fraction);
    const float below = fraction - static_cast<float>(p_tiny);
    // A float with something cut off has 24 bits: from 512 on 14 are left for p, from 256 on 15.
    const std::uint32_t above = static_cast<std::uint32_t>(whole) >> 8;
    const std::uint32_t lost = above | (above >> 1);
    return {static_cast<std::uint32_t>(whole) | (((a >> 13) - (112U << 10)) & ~tiny),
            static_cast<std::uint32_t>(p_tiny) | (((a & 0x1fffU) << 3) & ~tiny),
            0xfff8U | (tiny & 7U & ~lost), m.inexact | nonzero(bits_of(below))};
  }
  [[gnu::always_inline]] static Guess guess(Magnitude m, std::uint32_t word) {
    const std::uint32_t a = m.bits;
    const Guess guess = split(m).guess(word);
    const std::uint32_t rounded = a >= 0x47800000U ? 0x7c00U : guess.bits;
    return {a > kInfBits ? 0x7e00U : rounded, guess.tie & less(a, 0x47800000U)};
  }
};

// The steps of truncated sums

/// Rounding to bfloat16. kKnownBits: bits of p that a float towards zero has, of the 16 that are compared.
/// guess: the proportional rule. even_chance: away if not exact and the coin is 1. Both for t and the part
/// that was cut off.
struct ToBf16 {
  using Bits = std::uint16_t;
  static constexpr int kKnownBits = 16;
  static constexpr std::uint32_t kLimit = 0x7effffffU;
  [[gnu::always_inline]] static SrGuess<std::uint32_t> guess(float t, std::uint32_t rest,
                                                             std::uint32_t word) {
    const std::uint32_t a = bits_of(magnitude(t));
    const std::uint32_t above = a - word;
    // Comparison word < low half of a, as the carry of an addition.
    return {((above + 0xffffU) | (bits_of(t) & 0x80000000U)) >> 16, (above & 0xffffU) | (rest ^ 1U), a};
  }
  [[gnu::always_inline]] static SrGuess<std::uint32_t> even_chance(float t, std::uint32_t rest,
                                                                   std::uint32_t coin) {
    const std::uint32_t a = bits_of(magnitude(t));
    const std::uint32_t off_grid = (a & 0xffffU) != 0 ? 1U : rest;
    return {sign_16(t) | ((a >> 16) + (off_grid & coin)), 1, a};
  }
};

struct ToF16 {
  using Bits = std::uint16_t;
  static constexpr int kKnownBits = 13;
  static constexpr std::uint32_t kLimit = 0x477fdfffU;  // below 65504
  [[gnu::always_inline]] static SrGuess<std::uint32_t> guess(float t, std::uint32_t rest,
                                                             std::uint32_t word) {
    const std::uint32_t a = bits_of(magnitude(t));
    const Split split = GuessF16::split({a, 0, rest});
    return {sign_16(t) | (split.toward + less(word, split.p)),
            ((word ^ split.p) & split.known) | (split.rest ^ 1U), a};
  }
};

/// Rounding to float16 for sums of float16, all times 2^-112 (see scaled_half): below the least normal
/// number those sums are exact.
struct ToScaledF16 {
  using Bits = std::uint16_t;
  static constexpr int kKnownBits = 13;
  static constexpr std::uint32_t kLimit = 0x0f7fdfffU;  // below 65504 * 2^-112
  [[gnu::always_inline]] static SrGuess<std::uint32_t> guess(float t, std::uint32_t rest,
                                                             std::uint32_t word) {
    const std::uint32_t a = bits_of(magnitude(t));
    const std::uint32_t above = a - (word >> 3);
    return {sign_16(t) | ((above + 0x1fffU) >> 13), (above & 0x1fffU) | (rest ^ 1U), a};
  }
  [[gnu::always_inline]] static SrGuess<std::uint32_t> even_chance(float t, std::uint32_t rest,
                                                                   std::uint32_t coin) {
    const std::uint32_t a = bits_of(magnitude(t));
    const std::uint32_t off_grid = (a & 0x1fffU) != 0 ? 1U : rest;
    return {sign_16(t) | ((a >> 13) + (off_grid & coin)), 1, a};
  }
};

// Sums with their error.

/// Exact sum x + y = hi + lo: Knuth's 2Sum, exact below the limit.
template <class T>
struct SrPair {
  T hi;
  T lo;
};
template <class T>
[[gnu::always_inline]] inline SrPair<T> sum_of(T x, T y) {
  const T hi = x + y;
  const T y_part = hi - x;
  return {hi, (x - (hi - y_part)) + (y - y_part)};
}

/// Signed distance of S from hi, positive away from zero.
template <class T, class Word>
[[gnu::always_inline]] inline T outward_part(SrPair<T> s, Word sign) {
  return from_bits(bits_of(s.lo) ^ (bits_of(s.hi) & sign));
}

/// Rounding to float32. If part is negative, or -0, S lies inward: p = 1 - |part| / ulp, and 2^16 p is
/// above the threshold, at most 1 above. An exact -0 comes out right: away from the neighbour below, except
/// for the one word that `difference` marks. 1 / ulp = 2^(150 - e) comes in two factors, normal for every e
/// of a sum and finite where 0 - 1 wraps.
struct ToF32 {
  using Bits = std::uint32_t;
  static constexpr std::uint32_t kLimit = (238U << 23) - 1;
  [[gnu::always_inline]] static SrGuess<std::uint32_t> guess(SrPair<float> s, std::uint32_t word) {
    const std::uint32_t a = bits_of(magnitude(s.hi));
    const float part = outward_part(s, 0x80000000U);
    const std::uint32_t inward = 0U - (bits_of(part) >> 31);
    const std::uint32_t toward = a + inward;
    const float scaled = part * 0x1p40F * from_bits((253U << 23) - (toward & 0x7f800000U));
    const std::uint32_t threshold =
        static_cast<std::uint32_t>(static_cast<std::int32_t>(scaled)) + (inward & 0xffffU);
    const std::uint32_t difference = word - threshold;
    const std::uint32_t rounded = toward + (difference >> 31);
    return {bits_of(with_sign(from_bits(rounded), s.hi)), difference, a};
  }
  [[gnu::always_inline]] static SrGuess<std::uint32_t> even_chance(SrPair<float> s, std::uint32_t coin) {
    const std::uint32_t a = bits_of(magnitude(s.hi));
    const float part = outward_part(s, 0x80000000U);
    const std::uint32_t rounded = a - (part < 0 ? 1U : 0U) + (part != 0 ? coin : 0U);
    return {bits_of(with_sign(from_bits(rounded), s.hi)), 1, a};
  }
};

/// Truncates to an integer; |x| < 2^17.
[[gnu::always_inline]] inline std::int64_t to_integer(double x) {
#if defined(__AVX512DQ__)
  return static_cast<std::int64_t>(x);
#else
  return static_cast<std::int32_t>(x);  // what narrower vectors can do
#endif
}

struct ToF64 {
  using Bits = std::uint64_t;
  static constexpr std::uint64_t kLimit = 2030ULL << 52;
  [[gnu::always_inline]] static SrGuess<std::uint64_t> guess(SrPair<double> s, std::uint64_t word) {
    const std::uint64_t a = bits_of(magnitude(s.hi));
    const double part = outward_part(s, 1ULL << 63);
    const std::uint64_t inward = 0ULL - (bits_of(part) >> 63);
    const std::uint64_t toward = a + inward;
    const double scaled = part * 0x1p69 * from_bits((2045ULL << 52) - (toward & (0x7ffULL << 52)));
    const std::uint64_t threshold = static_cast<std::uint64_t>(to_integer(scaled)) + (inward & 0xffffU);
    const std::uint64_t difference = word - threshold;
    const std::uint64_t rounded = toward + (difference >> 63);
    return {bits_of(with_sign(from_bits(rounded), s.hi)), difference, a};
  }
  [[gnu::always_inline]] static SrGuess<std::uint64_t> even_chance(SrPair<double> s, std::uint64_t coin) {
    const std::uint64_t a = bits_of(magnitude(s.hi));
    const double part = outward_part(s, 1ULL << 63);
    const std::uint64_t rounded = a - (part < 0 ? 1ULL : 0ULL) + (part != 0 ? coin : 0ULL);
    return {bits_of(with_sign(from_bits(rounded), s.hi)), 1, a};
  }
};

}  // namespace
}  // namespace popsr::kernels
