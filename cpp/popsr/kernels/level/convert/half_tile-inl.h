// Conversion of float16 to float for a vector, by the CPU's instruction if it has one.
#pragma once

#include "popsr/kernels/level/convert/narrow-inl.h"
#include "popsr/kernels/level/simd/vector_types-inl.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

/// Converts as many elements as fill a vector of floats. Exact, so that no rounding mode matters.
[[gnu::always_inline]] inline FloatVector half_to_floats(const std::uint16_t* in) {
  FloatVector out;
#if defined(__AVX512F__)
  // The masked form, because GCC warns about the undefined operand inside the plain one.
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  out = (FloatVector)_mm512_maskz_cvtph_ps(static_cast<__mmask16>(0xffff), halves);
#elif defined(__F16C__)
  out = (FloatVector)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
#else
  for (int k = 0; k < kVectorBytes / 4; ++k) out[k] = half_to_float(in[k]);
#endif
  return out;
}

}  // namespace
}  // namespace popsr::kernels
