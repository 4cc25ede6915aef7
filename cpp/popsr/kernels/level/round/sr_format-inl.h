// The formats that stochastic rounding knows, as numbers; and their values as doubles, all exact.
#pragma once

#include "popsr/kernels/contract/round.h"
#include "popsr/kernels/level/convert/narrow-inl.h"

namespace popsr::kernels {
namespace {

/// "Code": the bits of a value without its sign. Codes ascend with the magnitude; one grid continues past
/// max_code.
struct SrLayout {
  int size;       ///< bytes
  int precision;  ///< bits of the significand, the hidden one included
  int bias;       ///< of the exponent; normals start at 2^(1 - bias)
  std::uint64_t max_code;
  std::uint64_t inf_code;  ///< nan_code where the format has no infinity
  std::uint64_t nan_code;
  std::uint64_t sign_bit;
  bool negative_zero;
};

constexpr SrLayout sr_layout(SrFormat format) {
  switch (format) {
    case SrFormat::kF64:
      return {8, 53, 1023, (0x7ffULL << 52) - 1, 0x7ffULL << 52, 0xfffULL << 51, 1ULL << 63, true};
    case SrFormat::kF32:
      return {4, 24, 127, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x80000000, true};
    case SrFormat::kF16:
      return {2, 11, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000, true};
    case SrFormat::kBf16:
      return {2, 8, 127, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, true};
    case SrFormat::kE4m3fn:
      return {1, 4, 7, 0x7e, 0x7f, 0x7f, 0x80, true};
    case SrFormat::kE5m2:
      return {1, 3, 15, 0x7b, 0x7c, 0x7e, 0x80, true};
    case SrFormat::kE4m3fnuz:
      return {1, 4, 8, 0x7f, 0x80, 0x80, 0x80, false};
    default:
      return {1, 3, 16, 0x7f, 0x80, 0x80, 0x80, false};
  }
}

template <std::size_t kSize>
struct SrStorageOf;
template <>
struct SrStorageOf<1> {
  using type = std::uint8_t;
};
template <>
struct SrStorageOf<2> {
  using type = std::uint16_t;
};
template <>
struct SrStorageOf<4> {
  using type = std::uint32_t;
};
template <>
struct SrStorageOf<8> {
  using type = std::uint64_t;
};
template <SrFormat kFormat>
using SrStorage = typename SrStorageOf<static_cast<std::size_t>(size_of(kFormat))>::type;

/// The value with those bits.
template <SrFormat kFormat>
[[gnu::always_inline]] inline double sr_widen(std::uint64_t bits) {
  if constexpr (kFormat == SrFormat::kF64) {
    return from_bits(bits);
  } else if constexpr (kFormat == SrFormat::kF32) {
    return static_cast<double>(from_bits(static_cast<std::uint32_t>(bits)));
  } else if constexpr (kFormat == SrFormat::kBf16) {
    return static_cast<double>(from_bits(static_cast<std::uint32_t>(bits) << 16));
  } else if constexpr (kFormat == SrFormat::kF16) {
    return static_cast<double>(half_to_float(static_cast<std::uint32_t>(bits)));
  } else {
    constexpr SrLayout kLayout = sr_layout(kFormat);
    constexpr std::uint64_t kSmallest = static_cast<std::uint64_t>(1024 - kLayout.bias) << 52;
    const std::uint64_t code = bits & (kLayout.sign_bit - 1);
    const std::uint64_t shifted = code << (53 - kLayout.precision);
    const std::uint64_t normal = shifted + (static_cast<std::uint64_t>(1023 - kLayout.bias) << 52);
    // A subnormal is its significand under the exponent of the least normal, minus that normal.
    const std::uint64_t subnormal = bits_of(from_bits(shifted + kSmallest) - from_bits(kSmallest));
    const std::uint64_t finite = code < (1ULL << (kLayout.precision - 1)) ? subnormal : normal;
    const std::uint64_t nan = bits_of(kNanF64);
    const std::uint64_t special =
        kLayout.inf_code != kLayout.nan_code && code == kLayout.inf_code ? bits_of(kInfF64) : nan;
    const std::uint64_t value = code > kLayout.max_code ? special : finite;
    const std::uint64_t sign = (bits & kLayout.sign_bit) << (64 - 8 * kLayout.size);
    if constexpr (!kLayout.negative_zero) return from_bits(bits == kLayout.sign_bit ? nan : sign | value);
    return from_bits(sign | value);
  }
}

}  // namespace
}  // namespace popsr::kernels
