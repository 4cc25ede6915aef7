// Operations as one double, in the rounding mode "towards zero", and the position of that double on the
// grid of a narrower format.
//
// Ops: apply<kBits, kBounded>(x, y, z, s), for kBits right bits, see within_range. Operations of one
// rounding give S cut to 53 bits. The others (kExact = false) give a double that is less than a unit of the
// 16 bits of p away from S, or NaN where cancellation leaves less, so that the bits of p they give are right
// up to one unit. Every operand is a double exactly.
#pragma once

#include "popsr/kernels/contract/round.h"
#include "popsr/kernels/level/round/exact/sr_exact.h"
#include "popsr/kernels/level/round/fast/sr_guess-inl.h"
#include "popsr/kernels/level/round/fast/sr_operand-inl.h"
#include "popsr/kernels/level/round/sr_tiles-inl.h"

namespace popsr::kernels {
namespace {

constexpr double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52);
}

/// Largest error of an estimate, in units of 16 bits of p.
template <class Op>
constexpr std::uint64_t kMargin = Op::kExact ? 0 : 1;

struct CastOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double, double, double) {
    return x;
  }
};
struct AddOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double) {
    return x + y;
  }
};
/// Operation x + y where y is the residual of x, whose sign a zero keeps.
struct ResidualOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double) {
    return with_sign(x + y, x);
  }
};
struct SubOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double) {
    return x - y;
  }
};
struct MulOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double) {
    return x * y;
  }
};

#if defined(__FMA__)

struct AxpyOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double s) {
    return __builtin_fma(s, x, y);
  }
};
struct FmaOp {
  static constexpr bool kExact = true;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double z, double) {
    return __builtin_fma(x, y, z);
  }
};

/// Sum x + term, or NaN after a cancellation that leaves less than kBits right bits: the term's error is at
/// most 2^-51 of it, and the term at most |sum| + |x|.
template <int kBits>
[[gnu::always_inline]] inline double unless_cancelled(double sum, double x) {
  return magnitude(x) * power_of_two(kBits - 50) > magnitude(sum) ? kNanF64 : sum;
}

/// Factor, or NaN if an operation on it may have overflowed, which "towards zero" hides, or lost bits by
/// underflow; a zero because of `by` = 0 is exact. kBounded: neither can happen, see kLargestScalar.
template <bool kBounded>
[[gnu::always_inline]] inline double within_range(double factor, double by) {
  if constexpr (kBounded) return factor;
  const double size = magnitude(factor);
  return (size > 0x1p900) | ((size < 0x1p-900) & (by != 0)) ? kNanF64 : factor;
}
/// Largest magnitude of a scalar (and inverse of the smallest) for which operands of float32 and 16-bit
/// formats bound every intermediate result.
constexpr double kLargestScalar = 0x1p600;

struct LerpOp {
  static constexpr bool kExact = false;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double t, double) {
    const double difference = within_range<kBounded>(y - x, 0.0);
    return unless_cancelled<kBits>(__builtin_fma(t, difference, x), x);
  }
};
struct AddcmulOp {
  static constexpr bool kExact = false;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double z, double s) {
    const double product = within_range<kBounded>(s * y, y);
    return unless_cancelled<kBits>(__builtin_fma(product, z, x), x);
  }
};
struct AddcdivOp {
  static constexpr bool kExact = false;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double z, double s) {
    const double product = within_range<kBounded>(s * y, y);
    return unless_cancelled<kBits>(x + within_range<kBounded>(product / z, y), x);
  }
};

#endif

/// Code that t becomes, and (its 16 bits of p - word + margin) modulo 2^16.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline SrGuess<std::uint64_t> round_one(double t, std::uint64_t word,
                                                               std::uint64_t margin) {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  constexpr int kDrop = 53 - kLayout.precision - 16;
  constexpr std::uint64_t kLeastNormal = static_cast<std::uint64_t>(1024 - kLayout.bias) << 52;
  constexpr std::uint64_t kRebias = static_cast<std::uint64_t>(1023 - kLayout.bias)
                                    << (kLayout.precision + 15);
  constexpr double kScale = power_of_two(16 + kLayout.precision - 1 - (1 - kLayout.bias));
  const std::uint64_t a = bits_of(magnitude(t));
  // Code and 16 bits of p. Below the least normal the addition cuts off what is less than one.
  const std::uint64_t normal = (a >> kDrop) - kRebias;
  const std::uint64_t subnormal = bits_of(magnitude(t) * kScale + 0x1p52) - bits_of(0x1p52);
  const std::uint64_t fixed = a < kLeastNormal ? subnormal : normal;
  const std::uint64_t code = (fixed + 0xffffU - word) >> 16;
  const std::uint64_t sign = (bits_of(t) >> (64 - 8 * kLayout.size)) & kLayout.sign_bit;
  const bool bare = !kLayout.negative_zero && code == 0;
  return {bare ? code : code | sign, (fixed - word + margin) & 0xffffU, a};
}

/// Beginning of the largest finite values, after which the next may be infinity.
template <FloatFormat kFormat>
constexpr std::uint64_t largest() {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  return (kLayout.max_code << (53 - kLayout.precision)) +
         (static_cast<std::uint64_t>(1023 - kLayout.bias) << 52);
}

/// Redoes the marked elements of a tile. `element`: number of the first; number_at(operand, i): operands of
/// element i.
template <class NumberAt>
void round_marked(void* out, const std::uint8_t* marks, const SrCall& call, std::uint64_t element,
                  std::int64_t n, const NumberAt& number_at) {
  static_assert(HardElements::kMost >= kFastTile && HardElements::kMost >= kSrTile);
  HardElements hard;
  for (std::int64_t i = 0; i < n; ++i) {
    if (marks[i] == 0) continue;
    for (int operand = 0; operand < 3; ++operand) hard.in[operand][hard.n] = number_at(operand, i);
    hard.u[hard.n] = noise_of(element + static_cast<std::uint64_t>(i), call.rounding.key);
    hard.index[hard.n++] = static_cast<int>(i);
  }
  round_hard_elements(out, hard, call);
}

}  // namespace
}  // namespace popsr::kernels
