// Codecs of narrow floats: widening, and narrowing to nearest even.
#pragma once

#include "popsr/kernels/level/convert/formats-inl.h"

namespace popsr::kernels {
namespace {

/// Codec of a format of 8 bits: widens a code with its sign, and narrows magnitudes to nearest even. `a`
/// has the bits of a float, which may be rounded to odd.
template <FloatFormat kFormat>
struct Codec {
  static constexpr FloatFormatInfo kLayout = info(kFormat);
  static constexpr auto kMaxCode = static_cast<std::uint32_t>(kLayout.max_code);
  static constexpr auto kInfCode = static_cast<std::uint32_t>(kLayout.inf_code);
  static constexpr auto kNanCode = static_cast<std::uint32_t>(kLayout.nan_code);
  static constexpr std::uint32_t kShift = 23 - kLayout.mantissa_bits;
  static constexpr std::uint32_t kRebias = (127U - kLayout.bias) << 23;
  static constexpr std::uint32_t kLeastNormal = (128U - kLayout.bias) << 23;
  /// A float whose last bit is the least subnormal of the format.
  static constexpr std::uint32_t kGrid = (127U + 23 + 1 - kLayout.bias - kLayout.mantissa_bits) << 23;

  [[gnu::always_inline]] static float widen(std::uint32_t bits) {
    const std::uint32_t code = bits & 0x7fU;
    const std::uint32_t shifted = code << kShift;
    // A subnormal is its mantissa under the exponent of the least normal, minus that normal.
    const std::uint32_t subnormal = bits_of(from_bits(shifted + kLeastNormal) - from_bits(kLeastNormal));
    const std::uint32_t finite = code < (1U << kLayout.mantissa_bits) ? subnormal : shifted + kRebias;
    const std::uint32_t special = kInfCode != kNanCode && code == kInfCode ? kInfBits : kNanBits;
    const std::uint32_t value = code > kMaxCode ? special : finite;
    const std::uint32_t with_sign = ((bits & 0x80U) << 24) | value;
    return from_bits(!kLayout.negative_zero && bits == kNanCode ? kNanBits : with_sign);
  }

  [[gnu::always_inline]] static std::uint32_t narrow(std::uint32_t a) {
    const std::uint32_t normal = (a - kRebias + ((1U << (kShift - 1)) - 1U) + ((a >> kShift) & 1U)) >> kShift;
    // Adding kGrid leaves multiples of the least subnormal in the significand, rounded by the adder.
    const std::uint32_t tiny = a < kLeastNormal ? a : 0;
    const std::uint32_t subnormal = bits_of(from_bits(tiny) + from_bits(kGrid)) - kGrid;
    const std::uint32_t code = a < kLeastNormal ? subnormal : normal;
    const std::uint32_t limited = code > kMaxCode ? kInfCode : code;
    return kInfCode != kNanCode && a > kInfBits ? kNanCode : limited;
  }
};

template <>
struct Codec<FloatFormat::kBf16> {
  [[gnu::always_inline]] static float widen(std::uint32_t bits) { return from_bits(bits << 16); }
  [[gnu::always_inline]] static std::uint32_t narrow(std::uint32_t a) {
    const std::uint32_t rounded = (a + 0x7fffU + ((a >> 16) & 1U)) >> 16;
    return a > kInfBits ? 0x7fc0U : rounded;
  }
};

template <>
struct Codec<FloatFormat::kF16> {
  [[gnu::always_inline]] static float widen(std::uint32_t bits) { return half_to_float(bits); }
  [[gnu::always_inline]] static std::uint32_t narrow(std::uint32_t a) {
    // Normal results: rebias the exponent by 15 - 127 and round 13 bits away; the carry may reach infinity.
    const std::uint32_t normal = (a + 0xc8000000U + 0xfffU + ((a >> 13) & 1U)) >> 13;
    // Subnormal results, |x| < 2^-14: adding 0.5 leaves multiples of 2^-24 in the significand, rounded by the
    // adder. The sum is normal, so flush modes do not matter.
    const std::uint32_t tiny = a < 0x38800000U ? a : 0;
    const std::uint32_t subnormal = bits_of(from_bits(tiny) + 0.5F) - bits_of(0.5F);
    const std::uint32_t finite = a < 0x38800000U ? subnormal : normal;
    const std::uint32_t limited = a >= 0x47800000U ? 0x7c00U : finite;  // 2^16 and infinity.
    return a > kInfBits ? 0x7e00U : limited;
  }
};

/// Bits of a magnitude that was narrowed, with the sign of x if the format has it. In 32 bits: loops that
/// shorten them in the middle vectorise worse.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline std::uint32_t signed_as(float x, std::uint32_t code) {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  const std::uint32_t sign =
      (bits_of(x) >> (32 - 8 * kLayout.size)) & static_cast<std::uint32_t>(kLayout.sign_bit);
  const bool bare = !kLayout.negative_zero && code == 0;  // its NaN has the bit of the sign already
  return code | (bare ? 0U : sign);
}

}  // namespace
}  // namespace popsr::kernels
