// The oracle of stochastic rounding: every operation and format in whole numbers of any size, nothing from
// the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "popsr/kernels/contract/round.h"

namespace sr_oracle {

using popsr::FloatFormat;
using popsr::kernels::SrMode;
using popsr::kernels::SrOp;
using popsr::kernels::SrRounding;

// Whole numbers

/// A natural number, 32 bits a digit, least first, no leading zeros.
class Natural {
 public:
  Natural() = default;
  explicit Natural(std::uint64_t value)
      : digits_{static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)} {
    trim();
  }
  bool is_zero() const { return digits_.empty(); }
  int bit_length() const {
    return digits_.empty() ? 0 : static_cast<int>(digits_.size()) * 32 - __builtin_clz(digits_.back());
  }
  std::uint64_t low_64() const { return digit(0) | digit(1) << 32; }

  Natural times_power_of_two(int shift) const {
    Natural out;
    out.digits_.assign(static_cast<std::size_t>(shift / 32), 0);
    std::uint64_t carry = 0;
    for (const std::uint32_t d : digits_) {
      carry |= static_cast<std::uint64_t>(d) << (shift % 32);
      out.digits_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    out.digits_.push_back(static_cast<std::uint32_t>(carry));
    out.trim();
    return out;
  }
  /// Quotient, and whether there is a remainder.
  std::pair<Natural, bool> over_power_of_two(int shift) const {
    bool rest = false;
    Natural out;
    for (std::size_t i = 0; i < digits_.size(); ++i) {
      const int position = static_cast<int>(i) * 32 - shift;
      if (position <= -32) {
        rest = rest || digits_[i] != 0;
      } else if (position < 0) {
        rest = rest || (digits_[i] & ((std::uint64_t{1} << -position) - 1)) != 0;
      }
    }
    for (std::size_t i = static_cast<std::size_t>(shift) / 32; i < digits_.size(); ++i) {
      const std::uint64_t pair = digit(i) | digit(i + 1) << 32;
      out.digits_.push_back(static_cast<std::uint32_t>(pair >> (shift % 32)));
    }
    out.trim();
    return {out, rest};
  }
  std::pair<Natural, bool> over(std::uint64_t divisor) const {
    Natural out = *this;
    unsigned __int128 rest = 0;
    for (std::size_t i = digits_.size(); i-- > 0;) {
      rest = rest << 32 | digits_[i];
      out.digits_[i] = static_cast<std::uint32_t>(rest / divisor);
      rest %= divisor;
    }
    out.trim();
    return {out, rest != 0};
  }

  friend Natural operator+(const Natural& a, const Natural& b) {
    Natural out;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.digits_.size(), b.digits_.size()) + 1; ++i) {
      carry += a.digit(i) + b.digit(i);
      out.digits_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    out.trim();
    return out;
  }
  /// a >= b
  friend Natural operator-(const Natural& a, const Natural& b) {
    Natural out = a;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      borrow += static_cast<std::int64_t>(a.digit(i)) - static_cast<std::int64_t>(b.digit(i));
      out.digits_[i] = static_cast<std::uint32_t>(borrow);
      borrow >>= 32;
    }
    out.trim();
    return out;
  }
  friend Natural operator*(const Natural& a, const Natural& b) {
    Natural out;
    out.digits_.assign(a.digits_.size() + b.digits_.size() + 1, 0);
    for (std::size_t i = 0; i < a.digits_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j <= b.digits_.size(); ++j) {
        carry += out.digits_[i + j] + a.digit(i) * b.digit(j);
        out.digits_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    out.trim();
    return out;
  }
  friend bool operator<(const Natural& a, const Natural& b) {
    if (a.digits_.size() != b.digits_.size()) return a.digits_.size() < b.digits_.size();
    return std::lexicographical_compare(a.digits_.rbegin(), a.digits_.rend(), b.digits_.rbegin(),
                                        b.digits_.rend());
  }

 private:
  std::uint64_t digit(std::size_t i) const { return i < digits_.size() ? digits_[i] : 0; }
  void trim() {
    while (!digits_.empty() && digits_.back() == 0) digits_.pop_back();
  }
  std::vector<std::uint32_t> digits_;
};

// Numbers with the zeros, infinities and NaNs of IEEE 754

/// natural * 2^exponent / divisor with a sign, or what `special` says.
struct Number {
  bool negative = false;
  Natural natural;
  int exponent = 0;
  std::uint64_t divisor = 1;
  double special = 0.0;  ///< Infinity or NaN, else 0.

  bool is_special() const { return special != 0.0; }
  bool is_zero() const { return !is_special() && natural.is_zero(); }
};

inline Number nan_number() {
  Number n;
  n.special = std::nan("");
  return n;
}

inline Number number(double x) {
  Number n;
  n.negative = std::signbit(x);
  if (!std::isfinite(x)) {
    n.special = std::isnan(x) ? x : 1.0 / 0.0;
    return n;
  }
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(x), &exponent);
  n.natural = Natural(static_cast<std::uint64_t>(std::ldexp(fraction, 53)));
  n.exponent = exponent - 53;
  return n;
}

inline Number negate(Number n) {
  n.negative = !n.negative;
  return n;
}

/// The divisors are equal, or one number has none and takes on the other's.
inline Number add(Number a, Number b) {
  if (std::isnan(a.special) || std::isnan(b.special)) return nan_number();
  if (a.is_special() && b.is_special()) return a.negative == b.negative ? a : nan_number();
  if (a.is_special() || b.is_special()) return a.is_special() ? a : b;
  const std::uint64_t divisor = std::max(a.divisor, b.divisor);
  for (Number* n : {&a, &b}) {
    if (n->divisor == divisor) continue;
    n->natural = n->natural * Natural(divisor);
    n->divisor = divisor;
  }
  if (a.is_zero() && b.is_zero()) {
    a.negative = a.negative && b.negative;
    return a;
  }
  if (a.is_zero() || b.is_zero()) return a.is_zero() ? b : a;
  Number out;
  out.divisor = divisor;
  out.exponent = std::min(a.exponent, b.exponent);
  const Natural x = a.natural.times_power_of_two(a.exponent - out.exponent);
  const Natural y = b.natural.times_power_of_two(b.exponent - out.exponent);
  if (a.negative == b.negative) {
    out.natural = x + y;
    out.negative = a.negative;
  } else {
    const bool less = x < y;
    out.natural = less ? y - x : x - y;
    out.negative = !out.natural.is_zero() && (less ? b.negative : a.negative);
  }
  return out;
}

inline Number multiply(const Number& a, const Number& b) {
  Number out;
  out.negative = a.negative != b.negative;
  if (std::isnan(a.special) || std::isnan(b.special)) return nan_number();
  if (a.is_special() || b.is_special()) {
    if (a.is_zero() || b.is_zero()) return nan_number();
    out.special = 1.0 / 0.0;
    return out;
  }
  out.natural = a.natural * b.natural;
  out.exponent = a.exponent + b.exponent;
  return out;
}

/// b comes straight from a double.
inline Number divide(const Number& a, const Number& b) {
  Number out = a;
  out.negative = a.negative != b.negative;
  if (std::isnan(a.special) || std::isnan(b.special)) return nan_number();
  if (a.is_special()) return b.is_special() ? nan_number() : out;
  if (b.is_special()) {
    out.natural = Natural();
  } else if (b.is_zero()) {
    if (a.is_zero()) return nan_number();
    out.special = 1.0 / 0.0;
  } else {
    out.exponent -= b.exponent;
    out.divisor = b.natural.low_64();
  }
  return out;
}

/// The exact result, composed as the operation is written.
inline Number evaluate(SrOp op, const double* in, double scalar) {
  const Number x = number(in[0]), y = number(in[1]), z = number(in[2]), s = number(scalar);
  switch (op) {
    case SrOp::kCast:
      return x;
    case SrOp::kAdd:
      return add(x, y);
    case SrOp::kSub:
      return add(x, negate(y));
    case SrOp::kMul:
      return multiply(x, y);
    case SrOp::kAxpy:
      return add(multiply(s, x), y);
    case SrOp::kFma:
      return add(multiply(x, y), z);
    case SrOp::kLerp:
      return add(x, multiply(z, add(y, negate(x))));
    case SrOp::kAddcmul:
      return add(x, multiply(multiply(s, y), z));
    default:
      return add(x, divide(multiply(s, y), z));
  }
}

// Formats

struct Format {
  int bits;
  int precision;
  int least_exponent;  ///< of a normal number
  std::uint64_t max_code;
  std::uint64_t infinity;  ///< 0: none
  std::uint64_t nan;
  bool negative_zero;
};

inline Format format_of(FloatFormat format) {
  switch (format) {
    case FloatFormat::kF64:
      return {64, 53, -1022, 0x7fefffffffffffff, 0x7ff0000000000000, 0x7ff8000000000000, true};
    case FloatFormat::kF32:
      return {32, 24, -126, 0x7f7fffff, 0x7f800000, 0x7fc00000, true};
    case FloatFormat::kF16:
      return {16, 11, -14, 0x7bff, 0x7c00, 0x7e00, true};
    case FloatFormat::kBf16:
      return {16, 8, -126, 0x7f7f, 0x7f80, 0x7fc0, true};
    case FloatFormat::kE4m3fn:
      return {8, 4, -6, 0x7e, 0, 0x7f, true};
    case FloatFormat::kE5m2:
      return {8, 3, -14, 0x7b, 0x7c, 0x7e, true};
    case FloatFormat::kE4m3fnuz:
      return {8, 4, -7, 0x7f, 0, 0x80, false};
    default:
      return {8, 3, -15, 0x7f, 0, 0x80, false};
  }
}

/// The value with those bits.
inline double decode(FloatFormat which, std::uint64_t bits) {
  const Format f = format_of(which);
  const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
  const std::uint64_t code = bits & (sign - 1);
  if (!f.negative_zero && bits == sign) return std::nan("");
  double value = 0.0;
  if (code > f.max_code) {
    value = f.infinity != 0 && code == f.infinity ? 1.0 / 0.0 : std::nan("");
  } else {
    const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
    const int field = static_cast<int>(code / hidden);
    const std::uint64_t significand = field == 0 ? code : code % hidden + hidden;
    value = std::ldexp(static_cast<double>(significand),
                       f.least_exponent - f.precision + (field == 0 ? 1 : field));
  }
  return (bits & sign) != 0 ? -value : value;
}

// Rounding

/// |S| between the values of code and code + 1; p = (p64 + less than 1) / 2^64, more: that part is not 0.
struct Bracket {
  std::uint64_t code;
  std::uint64_t p64;
  bool more;
};

/// s finite and not zero. Codes go on above the largest; S beyond them all has a code that is too large.
inline Bracket bracket(const Number& s, const Format& f) {
  const Natural divisor(s.divisor);
  int top = s.natural.bit_length() - divisor.bit_length();  // 2^(top - 1) < natural / divisor < 2^(top + 1)
  const bool below =
      top >= 0 ? s.natural < divisor.times_power_of_two(top) : s.natural.times_power_of_two(-top) < divisor;
  if (below) --top;
  top += s.exponent;  // 2^top <= |S| < 2^(top + 1)
  if (top > 1100) return {f.max_code + 1, 0, false};
  const int step = std::max(top, f.least_exponent) - f.precision + 1;
  const int shift = s.exponent - step + 64;
  Natural scaled = s.natural;
  bool more = false;
  if (shift >= 0) {
    scaled = scaled.times_power_of_two(shift);
  } else {
    std::tie(scaled, more) = scaled.over_power_of_two(-shift);
  }
  const auto [quotient, rest] = scaled.over(s.divisor);
  const std::uint64_t toward = quotient.over_power_of_two(64).first.low_64();
  const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
  const auto binade = static_cast<std::uint64_t>(std::max(top - f.least_exponent, 0));
  return {binade * hidden + toward, quotient.low_64(), more || rest};
}

inline bool goes_away(const Bracket& b, const SrRounding& rounding, bool negative, std::uint64_t u) {
  const bool inexact = b.p64 != 0 || b.more;
  const std::uint64_t half = std::uint64_t{1} << 63;
  switch (rounding.mode) {
    case SrMode::kProportional:
      return u < b.p64 || (u == b.p64 && b.more);
    case SrMode::kEqual:
      return inexact && u < half;
    case SrMode::kBits:
      return u >> (64 - rounding.bits) < b.p64 >> (64 - rounding.bits);
    case SrMode::kNearest:
      return b.p64 > half || (b.p64 == half && (b.more || b.code % 2 == 1));
    case SrMode::kUp:
      return inexact && !negative;
    case SrMode::kDown:
      return inexact && negative;
    default:
      return false;
  }
}

/// The bits of the result.
inline std::uint64_t round(const Number& s, const SrRounding& rounding, std::uint64_t u) {
  const Format f = format_of(rounding.format);
  const std::uint64_t sign = s.negative ? std::uint64_t{1} << (f.bits - 1) : 0;
  const std::uint64_t infinity =
      rounding.saturate ? sign | f.max_code : (f.infinity != 0 ? sign | f.infinity : f.nan);
  if (std::isnan(s.special)) return f.nan;
  if (s.is_special()) return infinity;
  const std::uint64_t zero = f.negative_zero ? sign : 0;
  if (s.is_zero()) return zero;
  const Bracket b = bracket(s, f);
  const std::uint64_t code = b.code + (goes_away(b, rounding, s.negative, u) ? 1 : 0);
  if (code == 0) return zero;
  if (code <= f.max_code) return sign | code;
  const bool stays =
      rounding.mode == SrMode::kZero || rounding.mode == (s.negative ? SrMode::kUp : SrMode::kDown);
  return stays ? sign | f.max_code : infinity;
}

inline std::uint64_t result(SrOp op, const double* in, double scalar, const SrRounding& rounding,
                            std::uint64_t u) {
  return round(evaluate(op, in, scalar), rounding, u);
}

}  // namespace sr_oracle
