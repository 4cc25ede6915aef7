// The oracle of sums of two numbers for sweeps over billions of pairs: 128-bit integers, nothing from the
// kernels.
#pragma once

#include <cstdint>
#include <utility>

#include "sr/oracle.h"

namespace sr_pairs {

using sr_oracle::Format;

/// significand * 2^exponent with a sign, or neither.
struct Term {
  bool special;
  bool negative;
  std::uint64_t significand;
  int exponent;
};
inline Term term_of(const Format& f, std::uint64_t bits) {
  const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
  const std::uint64_t code = bits & (sign - 1);
  const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
  const int field = static_cast<int>(code / hidden);
  const bool special = code > f.max_code || (!f.negative_zero && bits == sign);
  return {special, (bits & sign) != 0, field == 0 ? code : code % hidden + hidden,
          f.least_exponent - f.precision + (field == 0 ? 1 : field)};
}

/// |S| = (whole + less than 1) * 2^exponent; more: the last part is not 0.
struct Sum {
  bool negative;
  __int128 whole;
  int exponent;
  bool more;
};

/// S, kept down to 66 bits below the last bit of the term with the greater exponent: chances end before.
inline Sum sum_of(Term x, Term y) {
  constexpr int kKept = 66;
  if (x.exponent < y.exponent) std::swap(x, y);
  const int down = x.exponent - kKept - y.exponent;
  __int128 low = y.significand;
  bool more = false;
  if (down > 0) {
    low = down < 64 ? low >> down : 0;
    more = down < 64 ? (y.significand & ((std::uint64_t{1} << down) - 1)) != 0 : y.significand != 0;
  } else {
    low <<= -down;
  }
  const __int128 high = static_cast<__int128>(x.significand) << kKept;
  const int exponent = x.exponent - kKept;
  if (x.negative == y.negative) return {x.negative, high + low, exponent, more};
  if (high > low) return {x.negative, high - low - (more ? 1 : 0), exponent, more};
  return {y.negative, low - high, exponent, more};
}

inline int length(__int128 x) {
  const auto high = static_cast<std::uint64_t>(x >> 64);
  if (high != 0) return 128 - __builtin_clzll(high);
  return x == 0 ? 0 : 64 - __builtin_clzll(static_cast<std::uint64_t>(x));
}

inline sr_oracle::Bracket bracket(const Sum& s, const Format& f) {
  const int top = s.exponent + length(s.whole) - 1;
  const bool normal = top > f.least_exponent;
  const int step = (normal ? top : f.least_exponent) - f.precision + 1;
  const int shift = step - s.exponent;
  const auto mask = [](int bits) {
    return bits >= 127 ? ~(static_cast<__int128>(1) << 127) : (static_cast<__int128>(1) << bits) - 1;
  };
  const __int128 toward = shift <= 0 ? s.whole << -shift : (shift < 127 ? s.whole >> shift : 0);
  const __int128 rest = shift <= 0 ? 0 : s.whole & mask(shift);
  const int cut = shift - 64;
  __int128 p64 = 0;
  bool more = s.more;
  if (cut <= 0) {
    p64 = shift <= 0 ? 0 : rest << -cut;
  } else {
    p64 = cut < 127 ? rest >> cut : 0;
    more = more || (rest & mask(cut)) != 0;
  }
  const std::uint64_t binade = normal ? static_cast<std::uint64_t>(top - f.least_exponent) : 0;
  return {(binade << (f.precision - 1)) + static_cast<std::uint64_t>(toward), static_cast<std::uint64_t>(p64),
          more};
}

/// x + y under mode "sr", overflow "ieee".
inline std::uint64_t add(const Format& from_x, const Format& from_y, const Format& to, std::uint64_t x,
                         std::uint64_t y, std::uint64_t u) {
  const Term a = term_of(from_x, x);
  const Term b = term_of(from_y, y);
  const std::uint64_t infinity = to.infinity != 0 ? to.infinity : to.nan;
  const std::uint64_t sign = std::uint64_t{1} << (to.bits - 1);
  const auto signed_bits = [&](std::uint64_t code, bool negative) {
    const bool bare = code == to.nan || (code == 0 && !to.negative_zero);
    return negative && !bare ? code | sign : code;
  };
  if (a.special || b.special) {
    const auto infinite = [](const Format& f, std::uint64_t bits) {
      return f.infinity != 0 && (bits & ~(std::uint64_t{1} << (f.bits - 1))) == f.infinity;
    };
    const bool x_nan = a.special && !infinite(from_x, x);
    const bool y_nan = b.special && !infinite(from_y, y);
    if (x_nan || y_nan || (a.special && b.special && a.negative != b.negative)) return to.nan;
    return signed_bits(infinity, a.special ? a.negative : b.negative);
  }
  const Sum s = sum_of(a, b);
  if (s.whole == 0 && !s.more) {
    return signed_bits(0, a.negative && b.negative && a.significand == 0 && b.significand == 0);
  }
  const sr_oracle::Bracket at = bracket(s, to);
  const std::uint64_t code = at.code + (u < at.p64 || (u == at.p64 && at.more) ? 1 : 0);
  return signed_bits(code > to.max_code ? infinity : code, s.negative);
}

}  // namespace sr_pairs
