// Vectors of the matrix product, one set per instruction-set level.
//
// F32 and F64 carry the element type T, the vector V of kLanes elements, and the sizes of the register tiles:
// kRows x 2 vectors of plain products, kReducedRows x 2 vectors of reduced ones (which hold a sum beside each
// chain), kWideVecs vectors of up to kWideRows rows and kWidestVecs of one row: few rows read far more than
// they compute, best in long pieces.
#pragma once

#include <cstdint>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#define POPSR_INLINE __attribute__((always_inline)) inline

namespace popsr::kernels {
namespace {

/// Type-independent part: loads and stores need the alignment of an element only. load_between reads lanes
/// begin .. end-1 alone, the others are +0.
template <class Element, int Bytes>
struct VecBase {
  using T = Element;
  static constexpr int kLanes = Bytes / static_cast<int>(sizeof(T));
  typedef T V __attribute__((vector_size(Bytes)));
  typedef T Unaligned __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));

  static POPSR_INLINE V load(const T* p) { return *reinterpret_cast<const Unaligned*>(p); }
  static POPSR_INLINE void store(T* p, V x) { *reinterpret_cast<Unaligned*>(p) = x; }
  static POPSR_INLINE V splat(T x) { return x - V{}; }  // x - (+0) is x, -0 and NaN included.
};

#if defined(__AVX512F__)

struct F32 : VecBase<float, 64> {
  static constexpr int kRows = 12, kReducedRows = 6, kWideRows = 3;
  static constexpr int kWideVecs = 8, kWidestVecs = 16;
  static POPSR_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static POPSR_INLINE __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static POPSR_INLINE V load_part(const T* p, int n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static POPSR_INLINE V load_between(const T* p, int begin, int end) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask(end) & ~mask(begin)), p);
  }
  static POPSR_INLINE void store_part(T* p, V x, int n) { _mm512_mask_storeu_ps(p, mask(n), x); }
};

struct F64 : VecBase<double, 64> {
  static constexpr int kRows = 12, kReducedRows = 6, kWideRows = 3;
  static constexpr int kWideVecs = 8, kWidestVecs = 16;
  static POPSR_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static POPSR_INLINE __mmask8 mask(int n) { return static_cast<__mmask8>((1u << n) - 1u); }
  static POPSR_INLINE V load_part(const T* p, int n) { return _mm512_maskz_loadu_pd(mask(n), p); }
  static POPSR_INLINE V load_between(const T* p, int begin, int end) {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask(end) & ~mask(begin)), p);
  }
  static POPSR_INLINE void store_part(T* p, V x, int n) { _mm512_mask_storeu_pd(p, mask(n), x); }
};

#elif defined(__AVX2__) && defined(__FMA__)

struct F32 : VecBase<float, 32> {
  static constexpr int kRows = 6, kReducedRows = 3, kWideRows = 1;
  static constexpr int kWideVecs = 8, kWidestVecs = 8;
  static POPSR_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static POPSR_INLINE __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static POPSR_INLINE V load_part(const T* p, int n) { return _mm256_maskload_ps(p, mask(n)); }
  static POPSR_INLINE V load_between(const T* p, int begin, int end) {
    return _mm256_maskload_ps(p, _mm256_andnot_si256(mask(begin), mask(end)));
  }
  static POPSR_INLINE void store_part(T* p, V x, int n) { _mm256_maskstore_ps(p, mask(n), x); }
};

struct F64 : VecBase<double, 32> {
  static constexpr int kRows = 6, kReducedRows = 3, kWideRows = 1;
  static constexpr int kWideVecs = 8, kWidestVecs = 8;
  static POPSR_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static POPSR_INLINE __m256i mask(int n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static POPSR_INLINE V load_part(const T* p, int n) { return _mm256_maskload_pd(p, mask(n)); }
  static POPSR_INLINE V load_between(const T* p, int begin, int end) {
    return _mm256_maskload_pd(p, _mm256_andnot_si256(mask(begin), mask(end)));
  }
  static POPSR_INLINE void store_part(T* p, V x, int n) { _mm256_maskstore_pd(p, mask(n), x); }
};

#else

/// Vectors of 16 bytes: level v2 and generic builds.
template <class Element>
struct Vec16 : VecBase<Element, 16> {
  using T = Element;
  using typename VecBase<Element, 16>::V;
  static constexpr int kRows = 4, kReducedRows = 2, kWideRows = 1;
  static constexpr int kWideVecs = 8, kWidestVecs = 8;

  static POPSR_INLINE V fma(V a, V b, V c) {
#if defined(__x86_64__)
    return a * b + c;  // -ffp-contract=off: two roundings. A fused step in software would be far too slow.
#else
    for (int lane = 0; lane < Vec16::kLanes; ++lane) {
      if constexpr (sizeof(T) == 4) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
      if constexpr (sizeof(T) == 8) c[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
    }
    return c;
#endif
  }
  static POPSR_INLINE V load_part(const T* p, int n) {
    V x = {};
    for (int lane = 0; lane < n; ++lane) x[lane] = p[lane];
    return x;
  }
  static POPSR_INLINE V load_between(const T* p, int begin, int end) {
    V x = {};
    for (int lane = begin; lane < end; ++lane) x[lane] = p[lane];
    return x;
  }
  static POPSR_INLINE void store_part(T* p, V x, int n) {
    for (int lane = 0; lane < n; ++lane) p[lane] = x[lane];
  }
};
using F32 = Vec16<float>;
using F64 = Vec16<double>;

#endif

}  // namespace
}  // namespace popsr::kernels
