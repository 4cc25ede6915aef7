// Sums of float16 by the processor's conversions: adding the complement of the noise to the bits that float16 does not
// have and cutting them off is the proportional rule.
#pragma once

#include "popsr/kernels/level/common-inl.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__)

inline constexpr bool kHasHalfSums = true;

// The masked forms, because GCC warns about the undefined operand inside the plain ones.
[[gnu::always_inline]] inline __m512 widen_halves(__m256i halves) {
  return _mm512_maskz_cvtph_ps(static_cast<__mmask16>(0xffff), halves);
}
[[gnu::always_inline]] inline __m512i widen_words(__m256i words) {
  return _mm512_maskz_cvtepu16_epi32(static_cast<__mmask16>(0xffff), words);
}
[[gnu::always_inline]] inline __m256i low_half(__m512i x) {
  return __builtin_shufflevector(x, x, 0, 1, 2, 3);
}
[[gnu::always_inline]] inline __m256i high_half(__m512i x) {
  return __builtin_shufflevector(x, x, 4, 5, 6, 7);
}

/// What 16 sums have in common so far: the largest magnitude, and the largest of their cut-off bits with the noise
/// added, of sums that are inexact beyond these bits.
struct HalfExtremes {
  __m512i size = _mm512_setzero_si512();
  __m512i cut = _mm512_setzero_si512();
};

/// x + y rounded, in the mode "towards zero". `noise`: 0x1fff less the first 13 bits of U.
[[gnu::always_inline]] inline __m256i half_sum(HalfExtremes& extremes, __m512 x, __m512 y, __m512i noise) {
  const __m512i cut_off = _mm512_set1_epi32(0x1fff);
  const __m512 sum = _mm512_add_ps(x, y);
  const __mmask16 inexact = _mm512_cmp_ps_mask(_mm512_sub_ps(sum, x), y, _CMP_NEQ_UQ);
  const __m512i bits = _mm512_castps_si512(sum);
  const __m512i moved = _mm512_add_epi32(bits, noise);
  const __m512i cut = _mm512_and_si512(moved, cut_off);
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  extremes.cut = _mm512_mask_max_epu32(extremes.cut, inexact, extremes.cut, cut);
  extremes.size = _mm512_maskz_max_epu32(static_cast<__mmask16>(0xffff), extremes.size, size);
  return _mm512_maskz_cvtps_ph(static_cast<__mmask16>(0xffff), _mm512_castsi512_ps(moved),
                               _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

/// 32 sums.
[[gnu::always_inline]] inline __m512i half_sums(HalfExtremes& extremes, __m512i x, __m512i y, __m512i flip,
                                                __m512i words) {
  const __m512i noise =
      _mm512_xor_si512(_mm512_maskz_srli_epi16(~__mmask32{0}, words, 3), _mm512_set1_epi16(0x1fff));
  const __m512i signed_y = _mm512_xor_si512(y, flip);
  const __m256i low = half_sum(extremes, widen_halves(low_half(x)), widen_halves(low_half(signed_y)),
                               widen_words(low_half(noise)));
  const __m256i high = half_sum(extremes, widen_halves(high_half(x)), widen_halves(high_half(signed_y)),
                                widen_words(high_half(noise)));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

/// True if the extremes are those of a sum that the 13 bits do not decide, or that may be infinite or NaN.
inline bool has_hard(const HalfExtremes& extremes) {
  constexpr std::uint32_t kLimit = 0x477fdfffU;  // below 65504
  return _mm512_mask_cmpeq_epu32_mask(0xffff, extremes.cut, _mm512_set1_epi32(0x1fff)) != 0 ||
         _mm512_mask_cmpgt_epu32_mask(0xffff, extremes.size, _mm512_set1_epi32(kLimit)) != 0;
}

/// x + y, or x - y with the sign bit as `flip`; true if some sums are hard. In the mode "towards zero".
inline bool add_halves(std::uint16_t* out, const std::uint16_t* x, const std::uint16_t* y, std::uint16_t flip,
                       const std::uint16_t* words, std::int64_t n) {
  const __m512i flips = _mm512_set1_epi16(static_cast<short>(flip));
  HalfExtremes extremes;
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i sums = half_sums(extremes, _mm512_loadu_si512(x + i), _mm512_loadu_si512(y + i), flips,
                                   _mm512_loadu_si512(words + i));
    _mm512_storeu_si512(out + i, sums);
  }
  if (i < n) {
    const __mmask32 rest = (1U << (n - i)) - 1;
    const __m512i sums =
        half_sums(extremes, _mm512_maskz_loadu_epi16(rest, x + i), _mm512_maskz_loadu_epi16(rest, y + i),
                  flips, _mm512_maskz_loadu_epi16(rest, words + i));
    _mm512_mask_storeu_epi16(out + i, rest, sums);
  }
  return has_hard(extremes);
}

#else

inline constexpr bool kHasHalfSums = false;
inline bool add_halves(std::uint16_t*, const std::uint16_t*, const std::uint16_t*, std::uint16_t,
                       const std::uint16_t*, std::int64_t) {
  return false;
}

#endif

}  // namespace
}  // namespace popsr::kernels
