// float16 to and from float for whole tiles: by the CPU's conversions where it has them.
#pragma once

#include "popsr/kernels/level/convert/narrow-inl.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__AVX512F__)
// The masked forms, because GCC warns about the undefined operand inside the plain ones.
inline constexpr __mmask16 kAll = 0xffff;
#endif

/// Writes the bits of the floats. Exact, so that no rounding mode matters.
inline void widen_half_tile(std::uint32_t* out, const std::uint16_t* in, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(reinterpret_cast<float*>(out + i), _mm512_maskz_cvtph_ps(kAll, half));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(reinterpret_cast<float*>(out + i), _mm256_cvtph_ps(half));
  }
#endif
  for (; i < n; ++i) out[i] = bits_of(half_to_float(in[i]));
}

/// Of floats on the grid of float16, in its range.
inline std::uint16_t grid_to_half(std::uint32_t bits) {
  const std::uint32_t a = bits & 0x7fffffffU;
  const auto subnormal = static_cast<std::uint32_t>(static_cast<std::int32_t>(from_bits(a) * 0x1p24F));
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) |
                                    (a < 0x38800000U ? subnormal : (a >> 13) - (112U << 10)));
}
inline void narrow_grid_tile(std::uint16_t* out, const std::uint32_t* in, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m512 value = _mm512_loadu_ps(reinterpret_cast<const float*>(in + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_maskz_cvtps_ph(kAll, value, 0));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const __m256 value = _mm256_loadu_ps(reinterpret_cast<const float*>(in + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(value, 0));
  }
#endif
  for (; i < n; ++i) out[i] = grid_to_half(in[i]);
}

}  // namespace
}  // namespace popsr::kernels
