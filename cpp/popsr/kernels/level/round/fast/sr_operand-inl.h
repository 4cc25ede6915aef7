// Operands of the fast kernels, converted from their bits to numbers of the compute type; and the noise of
// a tile.
#pragma once

#include "popsr/kernels/level/convert/narrow-inl.h"
#include "popsr/kernels/level/noise/ars.h"

namespace popsr::kernels {
namespace {

/// Elements of a tile, at most 2 KiB of results: long enough to amortise the cost of a tile, short enough
/// that memory is never idle for long.
inline constexpr std::int64_t kFastTile = 512;
template <class Bits>
constexpr std::int64_t fast_tile() {
  return sizeof(Bits) == 8 ? kFastTile / 2 : kFastTile;
}
/// First 16 bits of U of the elements of a tile.
struct NoiseTile {
  alignas(64) std::uint16_t words[kFastTile + 8];

  /// Draws the words of n elements from `element` on and returns the first.
  const std::uint16_t* draw(std::uint64_t element, std::int64_t n, NoiseKey key) {
    const std::int64_t skip = static_cast<std::int64_t>(element % 8);
    noise_words(words, (skip + n + 7) / 8, element / 8, 0, key);
    return words + skip;
  }
};

/// Operand types. `value`: the number that the loop computes with, `flip` applied to its bits. `number`:
/// the operand itself. kHidesSpecials: infinities and NaNs have finite values, whose `size` is beyond every
/// limit.
struct FromF64 {
  using Bits = std::uint64_t;
  static constexpr bool kHidesSpecials = false;
  [[gnu::always_inline]] static double value(Bits bits, std::uint64_t flip) { return from_bits(bits ^ flip); }
  static double number(Bits bits) { return from_bits(bits); }
};
struct FromF32 {
  using Bits = std::uint32_t;
  static constexpr bool kHidesSpecials = false;
  [[gnu::always_inline]] static float value(Bits bits, std::uint32_t flip) { return from_bits(bits ^ flip); }
  static double number(Bits bits) { return static_cast<double>(from_bits(bits)); }
};
struct FromBf16 {
  using Bits = std::uint16_t;
  static constexpr bool kHidesSpecials = false;
  [[gnu::always_inline]] static float value(Bits bits, std::uint32_t flip) {
    return from_bits((static_cast<std::uint32_t>(bits) << 16) ^ flip);
  }
  static double number(Bits bits) { return static_cast<double>(value(bits, 0)); }
};

/// Product of a float16 and 2^-112 as bits of a float: the fields of both formats then agree, also for
/// subnormal numbers.
[[gnu::always_inline]] inline std::uint32_t scaled_half(std::uint16_t bits) {
  const auto extended =
      static_cast<std::uint32_t>(static_cast<std::int32_t>(static_cast<std::int16_t>(bits)));
  return (extended << 13) & 0x8fffe000U;
}
struct FromScaledF16 {
  using Bits = std::uint16_t;
  static constexpr bool kHidesSpecials = true;
  [[gnu::always_inline]] static float value(Bits bits, std::uint32_t flip) {
    return from_bits(scaled_half(bits) ^ flip);
  }
  [[gnu::always_inline]] static std::uint32_t size(Bits bits) { return scaled_half(bits) & 0x0fffe000U; }
  static double number(Bits bits) { return static_cast<double>(half_to_float(bits)); }
};
struct FromF16 {
  using Bits = std::uint16_t;
  static constexpr bool kHidesSpecials = false;
  [[gnu::always_inline]] static float value(Bits bits, std::uint32_t flip) {
    const std::uint32_t scaled = scaled_half(bits);
    const std::uint32_t special = (scaled & 0x0f800000U) == 0x0f800000U ? kInfBits : 0U;
    return from_bits((bits_of(from_bits(scaled) * 0x1p112F) | special) ^ flip);
  }
  static double number(Bits bits) { return static_cast<double>(half_to_float(bits)); }
};

}  // namespace
}  // namespace popsr::kernels
