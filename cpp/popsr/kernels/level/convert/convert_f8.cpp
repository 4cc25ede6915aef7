#include "popsr/kernels/level/convert/convert.h"
#include "popsr/kernels/level/convert/narrow-inl.h"

namespace popsr::kernels {
namespace {

/// One of the two formats of 8 bits: `kMantissa` bits of mantissa, an exponent biased by `kBias`.
template <std::uint32_t kMantissa, std::uint32_t kBias>
struct Float8 {
  static constexpr std::uint32_t kShift = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = (127 - kBias) << 23;
  static constexpr std::uint32_t kLeastNormal = (128 - kBias) << 23;
  /// A float whose last bit is the least subnormal of the format.
  static constexpr std::uint32_t kGrid = (127 + 23 + 1 - kBias - kMantissa) << 23;

  [[gnu::always_inline]] static float widen(std::uint32_t bits) {
    const std::uint32_t shifted = (bits & 0x7fU) << kShift;
    // A subnormal is its mantissa under the exponent of the least normal, minus that normal.
    const std::uint32_t subnormal = bits_of(from_bits(shifted + kLeastNormal) - from_bits(kLeastNormal));
    const std::uint32_t finite = (bits & 0x7fU) < (1U << kMantissa) ? subnormal : shifted + kRebias;
    const std::uint32_t value = ((bits & 0x80U) << 24) | finite;
    return from_bits(bits == 0x80U ? 0x7fc00000U : value);
  }

  /// Nearest even of the magnitude with bits a, which may be rounded to odd, and a sign: 0 or 0x80.
  [[gnu::always_inline]] static std::uint32_t narrow(std::uint32_t a, std::uint32_t sign) {
    const std::uint32_t normal = (a - kRebias + ((1U << (kShift - 1)) - 1U) + ((a >> kShift) & 1U)) >> kShift;
    // Adding kGrid leaves multiples of the least subnormal in the significand, rounded by the adder.
    const std::uint32_t tiny = a < kLeastNormal ? a : 0;
    const std::uint32_t subnormal = bits_of(from_bits(tiny) + from_bits(kGrid)) - kGrid;
    const std::uint32_t code = a < kLeastNormal ? subnormal : normal;
    const std::uint32_t limited = code > 0x7fU ? 0x80U : code;
    return limited | (limited == 0 ? 0U : sign);  // the NaN has the bit of the sign already
  }
};
using Float8_143 = Float8<3, 8>;
using Float8_152 = Float8<2, 16>;

[[gnu::always_inline]] inline std::uint32_t sign_8(float x) { return (bits_of(x) >> 24) & 0x80U; }

template <class Format>
void widen(float* out, const std::uint8_t* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = Format::widen(in[i]);
}

template <class Format>
void narrow(std::uint8_t* out, const float* hi, const float* lo, std::int64_t n) {
  if (lo == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<std::uint8_t>(Format::narrow(bits_of(magnitude(hi[i])), sign_8(hi[i])));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::uint8_t>(Format::narrow(odd_bits(hi[i], lo[i]), sign_8(hi[i])));
  }
}

}  // namespace

void widen_f8_143(float* out, const std::uint8_t* in, std::int64_t n) { widen<Float8_143>(out, in, n); }
void widen_f8_152(float* out, const std::uint8_t* in, std::int64_t n) { widen<Float8_152>(out, in, n); }
void narrow_f8_143(std::uint8_t* out, const float* hi, const float* lo, std::int64_t n) {
  narrow<Float8_143>(out, hi, lo, n);
}
void narrow_f8_152(std::uint8_t* out, const float* hi, const float* lo, std::int64_t n) {
  narrow<Float8_152>(out, hi, lo, n);
}

}  // namespace popsr::kernels
