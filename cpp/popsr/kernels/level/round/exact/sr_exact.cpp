#include "popsr/kernels/level/round/exact/sr_exact.h"

#include "popsr/kernels/level/round/exact/sr_bracket-inl.h"

namespace popsr::kernels {
namespace {

__extension__ typedef unsigned __int128 Wide128;

bool is_finite(double x) { return magnitude(x) < kInfF64; }
/// Reduces a number to the properties that decide about infinities and signs: zero, infinity, NaN and the
/// sign.
double unit(double x) { return is_finite(x) && x != 0 ? with_sign(1.0, x) : x; }

/// A product of up to three doubles: limbs * 2^exponent.
struct Product {
  std::uint64_t limb[3];
  std::int64_t exponent;
  bool negative;
};

Product product_of(double a, double b, double c) {
  Product p = {{1, 0, 0}, 0, false};
  const double factors[3] = {a, b, c};
  for (const double factor : factors) {
    const SrParts parts = parts_of(bits_of(magnitude(factor)));
    Wide128 carry = 0;
    for (std::uint64_t& limb : p.limb) {
      carry += static_cast<Wide128>(limb) * parts.significand;
      limb = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    p.exponent += parts.exponent - 1075;
    p.negative ^= (bits_of(factor) >> 63) != 0;
  }
  return p;
}

/// Fixed point, two's complement: room for every sum of a few products of three doubles.
constexpr int kLimbs = 100;
constexpr std::int64_t kLeast = -3264;  // exponent of the last bit; 3 * -1074 = -3222
struct FixedPoint {
  std::uint64_t limb[kLimbs] = {};
  std::int64_t least = kLeast;
  bool lost = false;  ///< Something below the last bit is not zero.
};

void add(FixedPoint& sum, const Product& p) {
  const std::int64_t position = p.exponent - sum.least;
  const int shift = static_cast<int>(position % 64);
  const std::uint64_t flip = p.negative ? ~std::uint64_t{0} : 0;
  Wide128 carry = p.negative ? 1 : 0;
  std::uint64_t below = 0;
  // Negative: the complement, which has ones above.
  for (int i = static_cast<int>(position / 64), k = 0; i < kLimbs; ++i, ++k) {
    const std::uint64_t here = k < 3 ? p.limb[k] : 0;
    const std::uint64_t shifted = shift == 0 ? here : (here << shift) | (below >> (64 - shift));
    if (k > 3 && carry == (p.negative ? 1 : 0)) break;
    carry += static_cast<Wide128>(sum.limb[i]) + (shifted ^ flip);
    sum.limb[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
    below = here;
  }
}

bool make_positive(FixedPoint& x) {
  if (x.limb[kLimbs - 1] >> 63 == 0) return false;
  std::uint64_t carry = 1;
  for (std::uint64_t& limb : x.limb) {
    limb = ~limb + carry;
    carry = carry != 0 && limb == 0 ? 1 : 0;
  }
  return true;
}

/// x / |d|, x >= 0.
void divide(FixedPoint& x, double d) {
  const SrParts parts = parts_of(bits_of(magnitude(d)));
  Wide128 rest = 0;
  for (int i = kLimbs - 1; i >= 0; --i) {
    rest = (rest << 64) | x.limb[i];
    if (rest == 0) continue;
    x.limb[i] = static_cast<std::uint64_t>(rest / parts.significand);
    rest %= parts.significand;
  }
  x.lost = rest != 0;
  x.least -= parts.exponent - 1075;
}

std::uint64_t bits_at(const FixedPoint& x, std::int64_t position) {
  const std::int64_t i = position / 64;
  const int shift = static_cast<int>(position % 64);
  if (i >= kLimbs) return 0;
  const std::uint64_t above = i + 1 < kLimbs && shift != 0 ? x.limb[i + 1] << (64 - shift) : 0;
  return (x.limb[i] >> shift) | above;
}

bool any_below(const FixedPoint& x, std::int64_t position) {
  for (std::int64_t i = 0; i < kLimbs && i < position / 64; ++i) {
    if (x.limb[i] != 0) return true;
  }
  const int shift = static_cast<int>(position % 64);
  return position / 64 < kLimbs && (x.limb[position / 64] & ((1ULL << shift) - 1)) != 0;
}

using CutFn = SrBracket (*)(SrParts value, std::uint64_t fraction, std::uint64_t sticky);
constexpr auto kCut = per_format<CutFn>([]<FloatFormat kFormat>() -> CutFn { return cut<kFormat>; });

/// The bracket of x > 0: first on the grid of double, continued above its largest exponent.
SrBracket bracket(const FixedPoint& x, FloatFormat format) {
  int top = kLimbs - 1;
  while (x.limb[top] == 0) --top;
  const std::int64_t leading = 64 * top + 63 - __builtin_clzll(x.limb[top]) + x.least;
  const std::int64_t step = leading - 52 < -1074 ? -1074 : leading - 52;
  const std::int64_t position = step - x.least;
  const std::int64_t field = step + 1075;
  // 2300: far above every format, and its code still fits in 64 bits.
  const SrParts value = {bits_at(x, position), field > 2300 ? 2300 : field};
  const bool sticky = x.lost || any_below(x, position - 64);
  return kCut[format](value, bits_at(x, position - 64), sticky ? 1 : 0);
}

/// S = addend + term, where only zeros, infinities, NaNs and signs of the two are right.
struct Outline {
  double addend;
  double term;
  bool has_both;
};

Outline outline_of(SrOp op, const double* in, double s) {
  const double x = in[0];
  switch (op) {
    case SrOp::kCast:
      return {x, 0.0, false};
    case SrOp::kAdd:
      return {x, in[1], true};
    case SrOp::kSub:
      return {x, -in[1], true};
    case SrOp::kMul:
      return {unit(x) * unit(in[1]), 0.0, false};
    case SrOp::kAxpy:
      return {in[1], unit(s) * unit(x), true};
    case SrOp::kFma:
      return {in[2], unit(x) * unit(in[1]), true};
    case SrOp::kLerp: {
      const double y = in[1];
      const bool ordered = is_finite(x) && is_finite(y) && x != y;
      const double difference = ordered ? (y > x ? 1.0 : -1.0) : y - x;
      return {x, unit(in[2]) * unit(difference), true};
    }
    case SrOp::kAddcmul:
      return {x, unit(s) * unit(in[1]) * unit(in[2]), true};
    default:
      return {x, unit(s) * unit(in[1]) / unit(in[2]), true};
  }
}

/// S by whole numbers, for finite operands and divisors other than 0; true: negative.
bool evaluate(FixedPoint& sum, SrOp op, const double* in, double s) {
  switch (op) {
    case SrOp::kCast:
      add(sum, product_of(in[0], 1, 1));
      break;
    case SrOp::kAdd:
    case SrOp::kSub:
      add(sum, product_of(in[0], 1, 1));
      add(sum, product_of(in[1], op == SrOp::kSub ? -1 : 1, 1));
      break;
    case SrOp::kMul:
      add(sum, product_of(in[0], in[1], 1));
      break;
    case SrOp::kAxpy:
      add(sum, product_of(s, in[0], 1));
      add(sum, product_of(in[1], 1, 1));
      break;
    case SrOp::kFma:
      add(sum, product_of(in[0], in[1], 1));
      add(sum, product_of(in[2], 1, 1));
      break;
    case SrOp::kLerp:
      add(sum, product_of(in[0], 1, 1));
      add(sum, product_of(in[1], in[2], 1));
      add(sum, product_of(in[0], in[2], -1));
      break;
    case SrOp::kAddcmul:
      add(sum, product_of(in[0], 1, 1));
      add(sum, product_of(s, in[1], in[2]));
      break;
    case SrOp::kAddcdiv: {
      add(sum, product_of(in[0], in[2], 1));
      add(sum, product_of(s, in[1], 1));
      const bool negative = make_positive(sum);
      divide(sum, in[2]);
      return negative != ((bits_of(in[2]) >> 63) != 0);
    }
  }
  return make_positive(sum);
}

bool is_zero(const FixedPoint& x) {
  for (const std::uint64_t limb : x.limb) {
    if (limb != 0) return false;
  }
  return !x.lost;
}

std::uint64_t finish(const FixedPoint& x, bool negative, const SrRounding& rounding, std::uint64_t u) {
  const FloatFormatInfo layout = info(rounding.format);
  const SrBracket b = bracket(x, rounding.format);
  const std::uint64_t sign = negative ? 1 : 0;
  const std::uint64_t code = b.code + away_from_zero(rule_of(rounding.mode, rounding.bits), b, sign, u);
  const SrLimits limits = limits_of(layout, rounding.mode, rounding.saturate);
  return signed_code(layout, code > limits.max_code ? limits.overflow[sign] : code, sign);
}

}  // namespace

std::uint64_t round_special(double x, const SrRounding& rounding) {
  const FloatFormatInfo layout = info(rounding.format);
  const std::uint64_t infinite = limits_of(layout, rounding.mode, rounding.saturate).infinite;
  const std::uint64_t code = x != x ? layout.nan_code : (x == 0 ? 0 : infinite);
  return x != x ? code : signed_code(layout, code, bits_of(x) >> 63);
}

std::uint64_t round_exactly(SrOp op, const double* in, double scalar, const SrRounding& rounding,
                            std::uint64_t u) {
  const Outline outline = outline_of(op, in, scalar);
  const double both = outline.has_both ? outline.addend + outline.term : outline.addend;
  if (!is_finite(outline.addend) || !is_finite(outline.term)) {
    return round_special(both, rounding);
  }
  FixedPoint sum;
  // A quotient by infinity is the one zero that an infinite operand gives.
  const bool vanishes = op == SrOp::kAddcdiv && !is_finite(in[2]);
  const bool negative = vanishes ? evaluate(sum, SrOp::kCast, in, 1.0) : evaluate(sum, op, in, scalar);
  if (!is_zero(sum)) return finish(sum, negative, rounding, u);
  const bool zeros = outline.addend == 0 && outline.term == 0;
  return round_special(zeros ? both : 0.0, rounding);
}

std::uint64_t round_element(const SrCall& call, const double* in, std::uint64_t u) {
  if (!call.residual) return round_exactly(call.op, in, call.scalar, call.rounding, u);
  // Rounds the magnitude; then applies the sign of x.
  const bool negative = bits_of(in[0]) >> 63 != 0;
  const double x = magnitude(in[0]);
  const double y = call.op == SrOp::kAdd && is_finite(x) ? in[1] : 0.0;
  const double outward = x == 0 ? magnitude(y) : (negative ? -y : y);
  const double mirrored[3] = {x, outward, 0.0};
  const FloatFormatInfo& format = info(call.rounding.format);
  const std::uint64_t code = round_exactly(SrOp::kAdd, mirrored, 1.0, call.rounding, u);
  const bool bare = !format.negative_zero && (code == 0 || code == format.nan_code);
  return negative && !bare ? code | format.sign_bit : code;
}

}  // namespace popsr::kernels
