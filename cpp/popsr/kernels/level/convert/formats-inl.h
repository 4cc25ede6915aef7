// Float formats in kernels: their storage, tables with a function per format, and their values as doubles,
// all exact.
#pragma once

#include "popsr/base/float_format.h"
#include "popsr/kernels/level/convert/narrow-inl.h"

namespace popsr::kernels {
namespace {

template <int... kIndex>
struct FormatIndices {};
template <int kCount, int... kIndex>
struct CountFormats : CountFormats<kCount - 1, kCount - 1, kIndex...> {};
template <int... kIndex>
struct CountFormats<0, kIndex...> {
  using type = FormatIndices<kIndex...>;
};

/// Table with a function per format, indexed by FloatFormat.
template <class Function>
struct PerFormat {
  Function of[kNumFloatFormats];
  [[gnu::always_inline]] constexpr Function operator[](FloatFormat format) const {
    return of[static_cast<int>(format)];
  }
};
template <class Function, class Choose, int... kIndex>
constexpr PerFormat<Function> per_format(Choose choose, FormatIndices<kIndex...>) {
  return {{choose.template operator()<static_cast<FloatFormat>(kIndex)>()...}};
}
/// Builds the table; `choose` is a lambda with the format as template parameter.
template <class Function, class Choose>
constexpr PerFormat<Function> per_format(Choose choose) {
  return per_format<Function>(choose, typename CountFormats<kNumFloatFormats>::type{});
}

template <std::size_t kSize>
struct StorageOf;
template <>
struct StorageOf<1> {
  using type = std::uint8_t;
};
template <>
struct StorageOf<2> {
  using type = std::uint16_t;
};
template <>
struct StorageOf<4> {
  using type = std::uint32_t;
};
template <>
struct StorageOf<8> {
  using type = std::uint64_t;
};
template <FloatFormat kFormat>
using Storage = typename StorageOf<static_cast<std::size_t>(size_of(kFormat))>::type;

/// Value with those bits.
template <FloatFormat kFormat>
[[gnu::always_inline]] inline double widen_to_double(std::uint64_t bits) {
  if constexpr (kFormat == FloatFormat::kF64) {
    return from_bits(bits);
  } else if constexpr (kFormat == FloatFormat::kF32) {
    return static_cast<double>(from_bits(static_cast<std::uint32_t>(bits)));
  } else if constexpr (kFormat == FloatFormat::kBf16) {
    return static_cast<double>(from_bits(static_cast<std::uint32_t>(bits) << 16));
  } else if constexpr (kFormat == FloatFormat::kF16) {
    return static_cast<double>(half_to_float(static_cast<std::uint32_t>(bits)));
  } else {
    constexpr FloatFormatInfo kLayout = info(kFormat);
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
