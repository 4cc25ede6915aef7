// Sums of float16 and of float32 at level v4, where the processor converts float16 and orders by magnitude;
// in the rounding mode "towards zero".
#pragma once

#include "popsr/kernels/level/round/fast/sr_loop-inl.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)

// The masked forms below, because GCC warns about the undefined operand inside the plain ones.
inline constexpr __mmask16 kAllFloats = 0xffff;

/// Extremes of the sums so far.
struct SumExtremes {
  __m512i size = _mm512_setzero_si512();  ///< Largest magnitude, as bits.
  /// Least distance of a word from the known bits of p; 0: undecided.
  __m512i least = _mm512_set1_epi32(-1);

  void see(__m512i bits, __m512i distance, __mmask16 seen) {
    const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    size = _mm512_maskz_max_epu32(kAllFloats, size, magnitudes);
    least = _mm512_mask_min_epu32(least, seen, least, distance);
  }
  bool hard(std::uint32_t limit) const {
    const __m512i most = _mm512_set1_epi32(static_cast<int>(limit));
    return _mm512_mask_cmpeq_epu32_mask(kAllFloats, least, _mm512_setzero_si512()) != 0 ||
           _mm512_mask_cmpgt_epu32_mask(kAllFloats, size, most) != 0;
  }
};

[[gnu::always_inline]] inline __m256i low_half(__m512i x) {
  return __builtin_shufflevector(x, x, 0, 1, 2, 3);
}
[[gnu::always_inline]] inline __m256i high_half(__m512i x) {
  return __builtin_shufflevector(x, x, 4, 5, 6, 7);
}
[[gnu::always_inline]] inline __m512i widen_words(__m256i words) {
  return _mm512_maskz_cvtepu16_epi32(kAllFloats, words);
}
// float16: adding the complement of the noise to the bits that float16 does not have, and cutting them off,
// is the proportional rule.

[[gnu::always_inline]] inline __m256i add_halves_16(SumExtremes& extremes, __m256i x, __m256i y,
                                                    __m512i complement) {
  const __m512i cut_off = _mm512_set1_epi32(0x1fff);
  const __m512 a = _mm512_maskz_cvtph_ps(kAllFloats, x);
  const __m512 b = _mm512_maskz_cvtph_ps(kAllFloats, y);
  const __m512 sum = _mm512_add_ps(a, b);
  // Towards zero, sum - a is b only if the sum is exact.
  const __mmask16 inexact = _mm512_cmp_ps_mask(_mm512_sub_ps(sum, a), b, _CMP_NEQ_UQ);
  const __m512i bits = _mm512_castps_si512(sum);
  const __m512i moved = _mm512_add_epi32(bits, complement);
  extremes.see(bits, _mm512_maskz_andnot_epi32(kAllFloats, moved, cut_off), inexact);
  return _mm512_maskz_cvtps_ph(kAllFloats, _mm512_castsi512_ps(moved),
                               _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

struct HalfSums {
  using Bits = std::uint16_t;
  static constexpr int kStep = 32;
  static constexpr std::uint32_t kLimit = 0x477fdfffU;  // below 65504

  [[gnu::always_inline]] static __m512i load(const Bits* x, std::uint32_t mask) {
    return _mm512_maskz_loadu_epi16(mask, x);
  }
  [[gnu::always_inline]] static void store(Bits* out, __m512i x, std::uint32_t mask) {
    _mm512_mask_storeu_epi16(out, mask, x);
  }
  [[gnu::always_inline]] static __m512i flips(std::uint32_t flip) {
    return _mm512_set1_epi16(static_cast<short>(flip >> 16));
  }
  [[gnu::always_inline]] static __m512i sum(SumExtremes& extremes, __m512i x, __m512i y,
                                            const std::uint16_t* words) {
    const __m512i first_13 = _mm512_maskz_srli_epi16(~__mmask32{0}, _mm512_loadu_si512(words), 3);
    const __m512i complement = _mm512_xor_si512(first_13, _mm512_set1_epi16(0x1fff));
    const __m256i low = add_halves_16(extremes, low_half(x), low_half(y), widen_words(low_half(complement)));
    const __m256i high =
        add_halves_16(extremes, high_half(x), high_half(y), widen_words(high_half(complement)));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

// float32: the rest of a sum towards zero, in units of its last bit, is p.

struct FloatSums {
  using Bits = std::uint32_t;
  static constexpr int kStep = 16;
  static constexpr std::uint32_t kLimit = (238U << 23) - 1;  // of ToF32, for the same reason

  [[gnu::always_inline]] static __m512i load(const Bits* x, std::uint32_t mask) {
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), x);
  }
  [[gnu::always_inline]] static void store(Bits* out, __m512i x, std::uint32_t mask) {
    _mm512_mask_storeu_epi32(out, static_cast<__mmask16>(mask), x);
  }
  [[gnu::always_inline]] static __m512i flips(std::uint32_t flip) {
    return _mm512_set1_epi32(static_cast<int>(flip));
  }
  [[gnu::always_inline]] static __m512i sum(SumExtremes& extremes, __m512i x, __m512i y,
                                            const std::uint16_t* words) {
    constexpr int kLessMagnitude = 0b0110, kGreaterMagnitude = 0b0111;  // with its own sign
    const __m512 a = _mm512_castsi512_ps(x);
    const __m512 b = _mm512_castsi512_ps(y);
    const __m512 great = _mm512_maskz_range_ps(kAllFloats, a, b, kGreaterMagnitude);
    const __m512 small = _mm512_maskz_range_ps(kAllFloats, a, b, kLessMagnitude);
    const __m512 sum = _mm512_add_ps(a, b);
    // sum - great is exact; the rest has the sign of the sum and is less than its last bit.
    const __m512 rest = _mm512_sub_ps(small, _mm512_sub_ps(sum, great));
    const __m512i bits = _mm512_castps_si512(sum);
    const __m512i exponent = _mm512_and_si512(bits, _mm512_set1_epi32(0x7f800000));
    // Factor 2^16 / (the last bit of the sum), in two factors, see ToF32.
    const __m512i factor = _mm512_sub_epi32(_mm512_set1_epi32(253 << 23), exponent);
    const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(magnitude_of(rest), _mm512_set1_ps(0x1p40F)),
                                        _mm512_castsi512_ps(factor));
    const __m512i p = _mm512_maskz_cvttps_epi32(kAllFloats, scaled);
    const __m256i drawn = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    const __m512i distance = _mm512_sub_epi32(widen_words(drawn), p);
    extremes.see(bits, distance, kAllFloats);
    return _mm512_add_epi32(bits, _mm512_maskz_srli_epi32(kAllFloats, distance, 31));
  }

 private:
  [[gnu::always_inline]] static __m512 magnitude_of(__m512 x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
  }
};

/// Computes x + y, or x - y with the sign bit of a float as `flip`; true if some sums are hard. `stream`:
/// around the caches, for aligned `out` and whole vectors.
template <class Sums>
[[gnu::always_inline]] inline bool add_vectors(typename Sums::Bits* out, const typename Sums::Bits* x,
                                               const typename Sums::Bits* y, std::uint32_t flip,
                                               const std::uint16_t* words, std::int64_t n, bool stream) {
  const __m512i flips = Sums::flips(flip);
  SumExtremes extremes;
  const auto sum = [&](std::int64_t i, std::uint32_t mask) __attribute__((always_inline)) {
    const __m512i signed_y = _mm512_xor_si512(Sums::load(y + i, mask), flips);
    return Sums::sum(extremes, Sums::load(x + i, mask), signed_y, words + i);
  };
  constexpr std::uint32_t kAll = ~std::uint32_t{0} >> (32 - Sums::kStep);
  const std::int64_t whole = n - n % Sums::kStep;
  if (stream) {
    for (std::int64_t i = 0; i < whole; i += Sums::kStep) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), sum(i, kAll));
    }
  } else {
    for (std::int64_t i = 0; i < whole; i += Sums::kStep) Sums::store(out + i, sum(i, kAll), kAll);
  }
  const std::uint32_t rest = (std::uint32_t{1} << (n - whole)) - 1;
  if (rest != 0) Sums::store(out + whole, sum(whole, rest), rest);
  return extremes.hard(Sums::kLimit);
}

/// The vector form of a Step, if it has one.
template <class Step>
struct VectorSumsOf {
  using Sums = void;
};
template <>
struct VectorSumsOf<TruncatedStep<ToScaledF16, FromScaledF16, FromScaledF16, true, false>> {
  using Sums = HalfSums;
};
template <>
struct VectorSumsOf<PairedStep<ToF32, FromF32, false>> {
  using Sums = FloatSums;
};

#else

template <class Step>
struct VectorSumsOf {
  using Sums = void;
};
/// Fallback for steps without a vector form; never called.
template <class Sums>
bool add_vectors(void*, const void*, const void*, std::uint32_t, const std::uint16_t*, std::int64_t, bool) {
  return false;
}

#endif

template <class A, class B>
constexpr bool kSame = false;
template <class A>
constexpr bool kSame<A, A> = true;
template <class Step>
constexpr bool kHasVectorSums = !kSame<typename VectorSumsOf<Step>::Sums, void>;

}  // namespace
}  // namespace popsr::kernels
