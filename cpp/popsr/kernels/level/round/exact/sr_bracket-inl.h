// Position of an exact value on the grid of a format, and the neighbour that it is rounded to. One function
// finds the position for every operation, one the neighbour for every mode.
#pragma once

#include "popsr/kernels/level/convert/formats-inl.h"

namespace popsr::kernels {
namespace {

/// Exact sum hi + lo + rest: hi is a neighbour of the sum among the doubles (or the sum), lo a neighbour of
/// the remainder, and rest stands for the remainder after both. If hi == 0 or lo == 0, so is everything after
/// it. |rest| < the last bit of lo; only its bits down to 2^-64 of a grid step and whether it is zero matter.
struct SrSum {
  double hi;
  double lo;
  double rest;
};

/// Bracket: |S| = value(code) + p (grid step), p = (p64 + [0, 1)) / 2^64; sticky = 1 iff the last part is
/// not 0.
struct SrBracket {
  std::uint64_t code;
  std::uint64_t p64;
  std::uint64_t sticky;
};

[[gnu::always_inline]] inline std::uint64_t nonzero_64(std::uint64_t x) { return x != 0 ? 1 : 0; }
[[gnu::always_inline]] inline std::int64_t clamp_shift(std::int64_t shift) {
  return shift < 0 ? 0 : (shift > 63 ? 63 : shift);
}

/// Parts of a double: |x| = significand * 2^(exponent - 1075).
struct SrParts {
  std::uint64_t significand;
  std::int64_t exponent;
};
[[gnu::always_inline]] inline SrParts parts_of(std::uint64_t magnitude_bits) {
  const std::uint64_t field = magnitude_bits >> 52;
  const std::uint64_t fraction = magnitude_bits & ((1ULL << 52) - 1);
  return {field == 0 ? fraction : fraction | (1ULL << 52),
          static_cast<std::int64_t>(field == 0 ? 1ULL : field)};
}

/// Fraction |x| / 2^(step - 1075) * 2^64 as integer and sticky bit; below 2^64.
[[gnu::always_inline]] inline SrBracket fraction_of(double x, std::int64_t step) {
  const SrParts parts = parts_of(bits_of(x) & ~(1ULL << 63));
  const std::int64_t down = step - parts.exponent - 64;
  const std::int64_t right = clamp_shift(down);
  const std::int64_t left = clamp_shift(-down);
  const std::uint64_t whole = parts.significand >> right;
  return {0, whole << left, nonzero_64(parts.significand ^ (whole << right))};
}

/// Cuts a double (significand, exponent field) and a fraction of its last bit down to the format.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline SrBracket cut(SrParts value, std::uint64_t fraction, std::uint64_t sticky) {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  const std::int64_t above = value.exponent - 1023 + kLayout.bias;  // biased exponent in the format
  const std::int64_t biased = above < 1 ? 1 : above;
  const std::uint64_t base = static_cast<std::uint64_t>(biased - 1) << (kLayout.precision - 1);
  if constexpr (kLayout.precision == 53) {
    return {base + value.significand, fraction, sticky};
  } else {
    const std::int64_t shift = 53 - kLayout.precision + (biased - above);
    const std::int64_t near = clamp_shift(shift);
    const std::int64_t far = clamp_shift(shift - 64);
    const bool is_near = shift < 64;
    const std::uint64_t top = value.significand >> near;
    const std::uint64_t p_near = (value.significand << (64 - near)) | (fraction >> near);
    const std::uint64_t p_far = value.significand >> far;
    const std::uint64_t lost_near = fraction ^ ((fraction >> near) << near);
    const std::uint64_t lost_far = (value.significand ^ (p_far << far)) | fraction;
    return {base + (is_near ? top : 0), is_near ? p_near : p_far,
            nonzero_64((is_near ? lost_near : lost_far) | sticky)};
  }
}

/// Bracket of |s|, s finite.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline SrBracket bracket_of(SrSum s) {
  const std::uint64_t sign = 1ULL << 63;
  const std::uint64_t inexact = nonzero_64(bits_of(s.lo) & ~sign);
  const std::uint64_t inward = inexact & ((bits_of(s.hi) ^ bits_of(s.lo)) >> 63);
  const SrParts value = parts_of((bits_of(s.hi) & ~sign) - inward);
  const SrBracket lo = fraction_of(s.lo, value.exponent);
  const SrBracket rest = fraction_of(s.rest, value.exponent);
  // If lo has bits below 2^-64, rest is below them: it neither adds nor borrows.
  const std::uint64_t opposite = (bits_of(s.lo) ^ bits_of(s.rest)) >> 63;
  const std::uint64_t less_rest = lo.p64 - rest.p64 - (rest.sticky & (lo.sticky ^ 1));
  const std::uint64_t outward = opposite != 0 ? less_rest : lo.p64 + rest.p64;
  const std::uint64_t sticky = lo.sticky | rest.sticky;
  return cut<kFormat>(value, inward != 0 ? 0 - outward - sticky : outward, sticky);
}

/// Rounding mode as a comparison: away from zero iff threshold < p64, or threshold == p64 and sticky.
struct SrRule {
  std::uint64_t keep;   ///< Mask of the bits of U and p64 that are compared.
  std::uint64_t use_u;  ///< All ones if the threshold is U.
  /// All ones if the threshold is 0 where U < 2^63 and all ones elsewhere, so that inexact results go away
  /// from zero.
  std::uint64_t half_u;
  std::uint64_t fixed[2];   ///< Threshold otherwise, by sign.
  std::uint64_t even;       ///< Flag: 1 if a tie at `fixed` goes to even.
  std::uint64_t sticky[2];  ///< Flag by sign: 0 if sticky is ignored.
};

inline SrRule rule_of(SrMode mode, int bits) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  switch (mode) {
    case SrMode::kProportional:
      return {kAll, kAll, 0, {0, 0}, 0, {1, 1}};
    case SrMode::kEqual:
      return {kAll, 0, kAll, {0, 0}, 0, {1, 1}};
    case SrMode::kBits:
      return {kAll << (64 - bits), kAll, 0, {0, 0}, 0, {0, 0}};
    case SrMode::kNearest:
      return {kAll, 0, 0, {1ULL << 63, 1ULL << 63}, 1, {1, 1}};
    case SrMode::kUp:
      return {kAll, 0, 0, {0, kAll}, 0, {1, 0}};
    case SrMode::kDown:
      return {kAll, 0, 0, {kAll, 0}, 0, {0, 1}};
    default:
      return {kAll, 0, 0, {kAll, kAll}, 0, {0, 0}};
  }
}

[[gnu::always_inline]] inline std::uint64_t away_from_zero(const SrRule& rule, SrBracket b,
                                                           std::uint64_t negative, std::uint64_t u) {
  const std::uint64_t all_if_high = 0 - (u >> 63);
  const std::uint64_t fixed = negative != 0 ? rule.fixed[1] : rule.fixed[0];
  const std::uint64_t drawn = (rule.use_u & u) | (rule.half_u & all_if_high);
  const std::uint64_t threshold = (drawn | (fixed & ~(rule.use_u | rule.half_u))) & rule.keep;
  const std::uint64_t low_u = rule.half_u & all_if_high & 1;  // a high coin never goes away
  const std::uint64_t p = b.p64 & rule.keep;
  const std::uint64_t heeds = (negative != 0 ? rule.sticky[1] : rule.sticky[0]) & (low_u ^ 1);
  const std::uint64_t sticky = (b.sticky & heeds) | (rule.even & b.code & 1);
  const std::uint64_t less = threshold < p ? 1 : 0;
  const std::uint64_t equal = threshold == p ? 1 : 0;
  return less | (equal & sticky);
}

/// Result for codes above the largest.
struct SrLimits {
  std::uint64_t max_code;
  std::uint64_t overflow[2];  ///< Result for finite S, by sign.
  std::uint64_t infinite;     ///< Result for infinite S.
};

inline SrLimits limits_of(const FloatFormatInfo& layout, SrMode mode, bool saturate) {
  const std::uint64_t infinite = saturate ? layout.max_code : layout.inf_code;
  const bool up = mode != SrMode::kZero && mode != SrMode::kDown;
  const bool down = mode != SrMode::kZero && mode != SrMode::kUp;
  return {layout.max_code, {up ? infinite : layout.max_code, down ? infinite : layout.max_code}, infinite};
}

/// Code with the sign: the only zero and the only NaN of some formats have none.
[[gnu::always_inline]] inline std::uint64_t signed_code(const FloatFormatInfo& layout, std::uint64_t code,
                                                        std::uint64_t negative) {
  const bool bare = code == layout.nan_code || (code == 0 && !layout.negative_zero);
  return bare ? code : code | (negative != 0 ? layout.sign_bit : 0);
}

}  // namespace
}  // namespace popsr::kernels
