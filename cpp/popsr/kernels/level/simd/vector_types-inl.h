// Packs of vectors of the level's length. Functions that are templates of F take a float or a pack of them:
// the steps of several vectors alternate, so that one need not wait for the other.
#pragma once

#include "popsr/kernels/level/common-inl.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kPack = 4;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kPack = 2;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kPack = 2;
#endif

typedef float FloatVector __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t WordVector __attribute__((vector_size(kVectorBytes)));
typedef double DoubleVector __attribute__((vector_size(kVectorBytes)));
typedef std::uint64_t LongVector __attribute__((vector_size(kVectorBytes)));
typedef std::uint16_t HalfVector __attribute__((vector_size(kVectorBytes / 2)));

/// Conversion of a pack, element by element.
template <class Element, class Vector>
struct Pack {
  Vector v[kPack];

  Pack() = default;
  [[gnu::always_inline]] Pack(Element x) {
    for (Vector& each : v) each = x - Vector{};  // x - (+0) is x, -0 and NaN included.
  }
  [[gnu::always_inline]] friend Pack operator-(Pack a) {
    for (Vector& each : a.v) each = -each;
    return a;
  }
  [[gnu::always_inline]] friend Pack operator+(Pack a, const Pack& b) {
    for (int k = 0; k < kPack; ++k) a.v[k] = a.v[k] + b.v[k];
    return a;
  }
  [[gnu::always_inline]] friend Pack operator-(Pack a, const Pack& b) {
    for (int k = 0; k < kPack; ++k) a.v[k] = a.v[k] - b.v[k];
    return a;
  }
  [[gnu::always_inline]] friend Pack operator*(Pack a, const Pack& b) {
    for (int k = 0; k < kPack; ++k) a.v[k] = a.v[k] * b.v[k];
    return a;
  }
  [[gnu::always_inline]] friend Pack operator/(Pack a, const Pack& b) {
    for (int k = 0; k < kPack; ++k) a.v[k] = a.v[k] / b.v[k];
    return a;
  }
  [[gnu::always_inline]] friend Pack operator<<(Pack a, int bits) {
    for (Vector& each : a.v) each = each << bits;
    return a;
  }
  [[gnu::always_inline]] friend Pack operator>>(Pack a, int bits) {
    for (Vector& each : a.v) each = each >> bits;
    return a;
  }
};
using Floats = Pack<float, FloatVector>;
using Words = Pack<std::uint32_t, WordVector>;
using Doubles = Pack<double, DoubleVector>;
using Longs = Pack<std::uint64_t, LongVector>;
inline constexpr int kFloats = kPack * kVectorBytes / 4;  ///< Floats in a pack.

/// Unsigned integer of the bits of F.
template <class F>
struct WordsOf {
  using type = std::uint32_t;
};
template <>
struct WordsOf<Floats> {
  using type = Words;
};
template <>
struct WordsOf<double> {
  using type = std::uint64_t;
};
template <>
struct WordsOf<Doubles> {
  using type = Longs;
};
template <class To, class From>
[[gnu::always_inline]] inline To reinterpreted(const From& x) {
  To out;
  for (int k = 0; k < kPack; ++k) __builtin_memcpy(&out.v[k], &x.v[k], kVectorBytes);
  return out;
}
[[gnu::always_inline]] inline Words bits_of(const Floats& x) { return reinterpreted<Words>(x); }
[[gnu::always_inline]] inline Floats from_bits(const Words& x) { return reinterpreted<Floats>(x); }
[[gnu::always_inline]] inline Longs bits_of(const Doubles& x) { return reinterpreted<Longs>(x); }
[[gnu::always_inline]] inline Doubles from_bits(const Longs& x) { return reinterpreted<Doubles>(x); }

// Greater and smaller of x and the limit; for NaN, NaN. GCC finds no vector instruction for them.
#if defined(__AVX512F__)
[[gnu::always_inline]] inline FloatVector greater(FloatVector a, FloatVector b) {
  return _mm512_maskz_max_ps(0xffff, a, b);
}
[[gnu::always_inline]] inline FloatVector smaller(FloatVector a, FloatVector b) {
  return _mm512_maskz_min_ps(0xffff, a, b);
}
[[gnu::always_inline]] inline DoubleVector greater(DoubleVector a, DoubleVector b) {
  return _mm512_maskz_max_pd(0xff, a, b);
}
[[gnu::always_inline]] inline DoubleVector smaller(DoubleVector a, DoubleVector b) {
  return _mm512_maskz_min_pd(0xff, a, b);
}
#else
template <class Vector>
[[gnu::always_inline]] inline Vector greater(Vector a, Vector b) {
  return a > b ? a : b;
}
template <class Vector>
[[gnu::always_inline]] inline Vector smaller(Vector a, Vector b) {
  return a < b ? a : b;
}
#endif

/// Sum a * b + c, rounded once if the level has an instruction for it: only for results that are the same
/// either way.
[[gnu::always_inline]] inline Doubles multiply_add(Doubles a, const Doubles& b, const Doubles& c) {
#if defined(__AVX512F__)
  for (int k = 0; k < kPack; ++k) a.v[k] = (DoubleVector)_mm512_fmadd_pd(a.v[k], b.v[k], c.v[k]);
#elif defined(__FMA__)
  for (int k = 0; k < kPack; ++k) a.v[k] = (DoubleVector)_mm256_fmadd_pd(a.v[k], b.v[k], c.v[k]);
#else
  for (int k = 0; k < kPack; ++k) a.v[k] = a.v[k] * b.v[k] + c.v[k];
#endif
  return a;
}

/// Clamps; NaN passes.
[[gnu::always_inline]] inline float at_least(float x, float low) { return x < low ? low : x; }
[[gnu::always_inline]] inline float at_most(float x, float high) { return x > high ? high : x; }
[[gnu::always_inline]] inline double at_least(double x, double low) { return x < low ? low : x; }
[[gnu::always_inline]] inline double at_most(double x, double high) { return x > high ? high : x; }
template <class E, class V>
[[gnu::always_inline]] inline Pack<E, V> at_least(Pack<E, V> x, E low) {
  for (V& each : x.v) each = greater(low - V{}, each);
  return x;
}
template <class E, class V>
[[gnu::always_inline]] inline Pack<E, V> at_most(Pack<E, V> x, E high) {
  for (V& each : x.v) each = smaller(high - V{}, each);
  return x;
}

/// Selects x > limit ? above : otherwise.
[[gnu::always_inline]] inline float where_above(float x, float limit, float above, float otherwise) {
  return x > limit ? above : otherwise;
}
[[gnu::always_inline]] inline Floats where_above(const Floats& x, float limit, const Floats& above,
                                                 Floats otherwise) {
  for (int k = 0; k < kPack; ++k) otherwise.v[k] = x.v[k] > limit ? above.v[k] : otherwise.v[k];
  return otherwise;
}

/// Negative magnitude -|x|.
[[gnu::always_inline]] inline Doubles negative_magnitude(Doubles x) {
  for (DoubleVector& each : x.v)
    each = __builtin_bit_cast(DoubleVector, __builtin_bit_cast(LongVector, each) | (1ULL << 63));
  return x;
}
/// Selects x >= limit ? above : otherwise; NaN gives `otherwise`.
[[gnu::always_inline]] inline Doubles where_at_least(const Doubles& x, double limit, const Doubles& above,
                                                     Doubles otherwise) {
  for (int k = 0; k < kPack; ++k) otherwise.v[k] = x.v[k] >= limit ? above.v[k] : otherwise.v[k];
  return otherwise;
}
/// Selects x < limit ? below : otherwise.
[[gnu::always_inline]] inline Doubles where_below(const Doubles& x, double limit, const Doubles& below,
                                                  Doubles otherwise) {
  for (int k = 0; k < kPack; ++k) otherwise.v[k] = x.v[k] < limit ? below.v[k] : otherwise.v[k];
  return otherwise;
}

// Conversions of float to double and back: half a pack of floats is a pack of doubles.

[[gnu::always_inline]] inline Doubles widened(const Floats& x, int part) {
  typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));
  Doubles out;
  for (int k = 0; k < kPack; ++k) {
    HalfFloats half[2];
    __builtin_memcpy(half, &x.v[(part * kPack + k) / 2], sizeof(half));
    out.v[k] = __builtin_convertvector(half[k % 2], DoubleVector);
  }
  return out;
}
[[gnu::always_inline]] inline void narrow_into(Floats& to, int part, const Doubles& x) {
  typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));
  for (int k = 0; k < kPack; k += 2) {
    const HalfFloats half[2] = {__builtin_convertvector(x.v[k], HalfFloats),
                                __builtin_convertvector(x.v[k + 1], HalfFloats)};
    __builtin_memcpy(&to.v[(part * kPack + k) / 2], half, sizeof(half));
  }
}

// Conversions of bfloat16, which is the upper half of a float.

[[gnu::always_inline]] inline float bf16_to_float(std::uint16_t x) {
  return from_bits(static_cast<std::uint32_t>(x) << 16);
}
[[gnu::always_inline]] inline FloatVector bf16_to_floats(const std::uint16_t* x) {
  HalfVector stored;
  __builtin_memcpy(&stored, x, sizeof(stored));
#if defined(__AVX512F__)  // GCC widens the halves, then joins them.
  const WordVector wide = (WordVector)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)stored);
#else
  const WordVector wide = __builtin_convertvector(stored, WordVector);
#endif
  return __builtin_bit_cast(FloatVector, wide << 16);
}
/// Rounds to nearest even; NaN keeps its sign only.
[[gnu::always_inline]] inline HalfVector floats_to_bf16(FloatVector x) {
  const WordVector u = __builtin_bit_cast(WordVector, x);
  const WordVector rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const WordVector out = x != x ? ((u >> 16) & 0x8000U) | 0x7fc0U : rounded;
#if defined(__AVX512F__)
  return (HalfVector)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)out);
#else
  return __builtin_convertvector(out, HalfVector);
#endif
}

}  // namespace
}  // namespace popsr::kernels
