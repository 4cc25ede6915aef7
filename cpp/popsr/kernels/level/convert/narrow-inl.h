// Exact value hi + lo as an integer: shared by rounding to nearest and stochastic rounding.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr std::uint32_t kInfBits = 0x7f800000U;
inline constexpr std::uint32_t kNanBits = 0x7fc00000U;

// Conditions as 0 or 1, by arithmetic: from && and ?: on related conditions the compiler makes control flow,
// which keeps a loop from vectorising. Operands below 2^31.
[[gnu::always_inline]] inline std::uint32_t less(std::uint32_t a, std::uint32_t b) { return (a - b) >> 31; }
[[gnu::always_inline]] inline std::uint32_t nonzero(std::uint32_t a) { return (0U - a) >> 31; }

/// Magnitude |hi + lo| = (bits + fraction) float ulps above, 0 <= fraction < 1, where "bits" are the bits
/// of the next float towards zero and fraction > 0 iff lo != 0; the ulp belongs to the binade of `bits`.
/// Infinity and NaN keep their bits.
struct Magnitude {
  std::uint32_t bits;
  std::uint32_t inward;   ///< 1: lo points towards zero, fraction = 1 - |lo| / ulp; 0: fraction = |lo| / ulp.
  std::uint32_t inexact;  ///< 1: lo != 0
};
[[gnu::always_inline]] inline Magnitude magnitude_of(float hi, float lo) {
  const std::uint32_t h = bits_of(hi);
  const std::uint32_t l = bits_of(lo);
  const std::uint32_t a = h & 0x7fffffffU;
  const std::uint32_t inexact = nonzero(l & 0x7fffffffU) & less(a, kInfBits);
  const std::uint32_t inward = inexact & ((h ^ l) >> 31) & nonzero(a);
  return {a - inward, inward, inexact};
}

/// Bits rounded to odd: the last bit is sticky, so that rounding once more to a shorter format is correct
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
[[gnu::always_inline]] inline std::uint32_t odd_bits(float hi, float lo) {
  const Magnitude m = magnitude_of(hi, lo);
  return m.bits | m.inexact;
}

/// Converts float16 to float, exactly.
[[gnu::always_inline]] inline float half_to_float(std::uint32_t h) {
  const std::uint32_t shifted = (h & 0x7fffU) << 13;
  const std::uint32_t exponent = shifted & 0x0f800000U;
  const std::uint32_t normal = shifted + (112U << 23);
  // A subnormal is its significand under the exponent of 2^-14, minus 2^-14.
  const std::uint32_t subnormal = bits_of(from_bits(shifted + (113U << 23)) - from_bits(113U << 23));
  const std::uint32_t special = shifted + (224U << 23);
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  return from_bits(((h & 0x8000U) << 16) | (exponent == 0x0f800000U ? special : finite));
}

[[gnu::always_inline]] inline std::uint32_t sign_16(float x) { return (bits_of(x) >> 16) & 0x8000U; }

}  // namespace
}  // namespace popsr::kernels
