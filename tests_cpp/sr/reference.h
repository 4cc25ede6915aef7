// The scalar specification of stochastic rounding, as one would explain it: TwoSum, the next representable
// value on the side of the error, and a whole-number probability.
#pragma once

#include <cmath>
#include <cstdint>

#include "popsr/kernels/contract/round.h"
#include "sr/oracle.h"

namespace sr_reference {

using popsr::FloatFormat;

/// S = hi + lo exactly.
struct TwoSum {
  double hi;
  double lo;
};
inline TwoSum two_sum(double x, double y) {
  if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
  const double hi = x + y;
  return {hi, y - (hi - x)};
}

/// The magnitude of `code`, which may be one past the largest.
inline double magnitude(FloatFormat format, std::uint64_t code) {
  const sr_oracle::Format f = sr_oracle::format_of(format);
  if (code <= f.max_code) return sr_oracle::decode(format, code);
  const double last = sr_oracle::decode(format, f.max_code);
  return last + (last - sr_oracle::decode(format, f.max_code - 1));
}

/// The largest code with a magnitude of at most hi + lo, by bisection; max_code + 1 if that is too.
inline std::uint64_t toward_zero(FloatFormat format, double hi, double lo) {
  std::uint64_t low = 0;
  std::uint64_t high = sr_oracle::format_of(format).max_code + 2;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const double value = magnitude(format, middle);
    const bool fits = value < hi || (value == hi && lo >= 0);
    (fits ? low : high) = middle;
  }
  return low;
}

/// a / step in 2^-124ths: whole ones, and whether something is left. |a| < step, a power of two.
struct FixedPoint {
  __int128 whole;
  bool more;
};
inline FixedPoint fixed_point(double a, double step) {
  const double ratio = std::ldexp(a / step, 64);
  if (a != 0 && std::fabs(ratio) < 0x1p-60) return {a < 0 ? -1 : 0, true};
  const double whole = std::floor(ratio);
  const double rest = std::ldexp(ratio - whole, 60);
  return {(static_cast<__int128>(whole) << 60) + static_cast<__int128>(rest), rest != std::floor(rest)};
}

/// x + y, whose sum as doubles is finite or has an infinite operand; mode "sr", overflow "ieee".
inline std::uint64_t add(FloatFormat format, double x, double y, std::uint64_t u) {
  const sr_oracle::Format f = sr_oracle::format_of(format);
  const TwoSum s = two_sum(x, y);
  const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
  const std::uint64_t infinity = f.infinity != 0 ? f.infinity : f.nan;
  if (std::isnan(s.hi)) return f.nan;
  const bool negative = std::signbit(s.hi);
  const double hi = std::fabs(s.hi);
  const double lo = negative ? -s.lo : s.lo;
  const auto with_sign = [&](std::uint64_t code) {
    const bool bare = code == f.nan || (code == 0 && !f.negative_zero);
    return bare || !negative ? code : code | sign;
  };
  if (std::isinf(hi)) return with_sign(infinity);
  const std::uint64_t toward = toward_zero(format, hi, lo);
  if (toward > f.max_code) return with_sign(infinity);
  const double low = magnitude(format, toward);
  const double step = magnitude(format, toward + 1) - low;
  // S - low = (hi - low) + lo, both exact.
  const FixedPoint from_hi = fixed_point(hi - low, step);
  const FixedPoint from_lo = fixed_point(lo, step);
  const __int128 chance = from_hi.whole + from_lo.whole;
  const __int128 drawn = static_cast<__int128>(u) << 60;
  const bool away = drawn < chance || (drawn == chance && (from_hi.more || from_lo.more));
  const std::uint64_t code = toward + (away ? 1 : 0);
  return with_sign(code > f.max_code ? infinity : code);
}

}  // namespace sr_reference
