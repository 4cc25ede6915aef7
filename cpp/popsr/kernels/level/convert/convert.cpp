#include "popsr/kernels/level/convert/convert.h"

#include "popsr/kernels/level/convert/narrow-inl.h"

namespace popsr::kernels {
namespace {

/// Nearest even of the magnitude with bits a.
[[gnu::always_inline]] inline std::uint32_t round_to_bf16(std::uint32_t a) {
  const std::uint32_t rounded = (a + 0x7fffU + ((a >> 16) & 1U)) >> 16;
  return a > kInfBits ? 0x7fc0U : rounded;
}

[[gnu::always_inline]] inline std::uint32_t round_to_f16(std::uint32_t a) {
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

struct NarrowBf16 {
  [[gnu::always_inline]] static std::uint32_t apply(std::uint32_t a) { return round_to_bf16(a); }
};
struct NarrowF16 {
  [[gnu::always_inline]] static std::uint32_t apply(std::uint32_t a) { return round_to_f16(a); }
};

template <class Format>
void narrow(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n) {
  if (lo == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<std::uint16_t>(sign_16(hi[i]) | Format::apply(bits_of(magnitude(hi[i]))));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::uint16_t>(sign_16(hi[i]) | Format::apply(odd_bits(hi[i], lo[i])));
  }
}

/// The remainder d of a conversion to float, never rounded to zero.
[[gnu::always_inline]] inline float remainder_to_float(double d) {
  const float rounded = static_cast<float>(d);
  return rounded == 0.0F && d != 0.0 ? static_cast<float>(with_sign(0x1p-149, d)) : rounded;
}

}  // namespace

void widen_f16(float* out, const std::uint16_t* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = half_to_float(in[i]);
}

void widen_bf16(float* out, const std::uint16_t* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_bits(static_cast<std::uint32_t>(in[i]) << 16);
}

void narrow_f16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n) {
  narrow<NarrowF16>(out, hi, lo, n);
}
void narrow_bf16(std::uint16_t* out, const float* hi, const float* lo, std::int64_t n) {
  narrow<NarrowBf16>(out, hi, lo, n);
}

void split_f64(float* hi, float* lo, const double* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = in[i];
    const float rounded = static_cast<float>(x);
    const float rest = remainder_to_float(x - static_cast<double>(rounded));
    hi[i] = rounded;
    lo[i] = magnitude(rounded) < kInfF32 ? rest : 0.0F;
  }
}

// |x - hi| < 2^40, so the wrapped difference of the unsigned values is the signed difference; hi may be 2^63
// or 2^64, which wrap to what the difference needs.
void split_i64(float* hi, float* lo, const std::int64_t* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t x = in[i];
    const float rounded = static_cast<float>(x);
    const std::uint64_t back =
        rounded >= 0x1p63F ? 1ULL << 63 : static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded));
    hi[i] = rounded;
    lo[i] = static_cast<float>(static_cast<std::int64_t>(static_cast<std::uint64_t>(x) - back));
  }
}

void split_u64(float* hi, float* lo, const std::uint64_t* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t x = in[i];
    const float rounded = static_cast<float>(x);
    const std::uint64_t back = rounded >= 0x1p64F ? 0 : static_cast<std::uint64_t>(rounded);
    hi[i] = rounded;
    lo[i] = static_cast<float>(static_cast<std::int64_t>(x - back));
  }
}

}  // namespace popsr::kernels
