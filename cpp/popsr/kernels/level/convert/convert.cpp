#include "popsr/kernels/level/convert/convert.h"

#include "popsr/kernels/level/convert/codecs-inl.h"

namespace popsr::kernels {
namespace {

template <FloatFormat kFormat>
void widen(float* out, const void* in, std::int64_t n) {
  const auto* bits = static_cast<const Storage<kFormat>*>(in);
  for (std::int64_t i = 0; i < n; ++i) out[i] = Codec<kFormat>::widen(bits[i]);
}

template <FloatFormat kFormat>
void narrow(void* out, const float* hi, const float* lo, std::int64_t n) {
  auto* bits = static_cast<Storage<kFormat>*>(out);
  if (lo == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t code = Codec<kFormat>::narrow(bits_of(magnitude(hi[i])));
      bits[i] = static_cast<Storage<kFormat>>(signed_as<kFormat>(hi[i], code));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t code = Codec<kFormat>::narrow(odd_bits(hi[i], lo[i]));
    bits[i] = static_cast<Storage<kFormat>>(signed_as<kFormat>(hi[i], code));
  }
}

/// The residual d of a conversion to float, never rounded to zero.
[[gnu::always_inline]] inline float residual_to_float(double d) {
  const float rounded = static_cast<float>(d);
  return rounded == 0.0F && d != 0.0 ? static_cast<float>(with_sign(0x1p-149, d)) : rounded;
}

using WidenFn = void (*)(float* out, const void* in, std::int64_t n);
using NarrowFn = void (*)(void* out, const float* hi, const float* lo, std::int64_t n);

constexpr auto kWiden = per_format<WidenFn>([]<FloatFormat kFormat>() -> WidenFn {
  if constexpr (size_of(kFormat) < 4) return widen<kFormat>;
  return nullptr;
});
constexpr auto kNarrow = per_format<NarrowFn>([]<FloatFormat kFormat>() -> NarrowFn {
  if constexpr (size_of(kFormat) < 4) return narrow<kFormat>;
  return nullptr;
});

}  // namespace

void widen_floats(FloatFormat format, float* out, const void* in, std::int64_t n) {
  kWiden[format](out, in, n);
}
void narrow_floats(FloatFormat format, void* out, const float* hi, const float* lo, std::int64_t n) {
  kNarrow[format](out, hi, lo, n);
}

void split_f64(float* hi, float* lo, const double* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = in[i];
    const float rounded = static_cast<float>(x);
    const float rest = residual_to_float(x - static_cast<double>(rounded));
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
