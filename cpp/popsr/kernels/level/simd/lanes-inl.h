// Reductions of one contiguous row.
//
// Sums of floats follow one fixed order whatever the vector length: element i goes to lane i mod 16, lanes
// reduce as a tree, see ReduceFn. Padding lanes hold -0, the identity of addition. Maxima and integer sums
// have no order.
#pragma once

#include "popsr/kernels/level/simd/vector_types-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr int kLanes = 16;

template <class T>
struct Sum {
  T hi;
  T lo;
};

/// Reduces the 16 lanes; lo is the residual of the last addition.
template <class T>
[[gnu::always_inline]] inline Sum<T> reduce_lanes(T* lanes) {
  for (int width = kLanes / 2; width > 1; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  const T hi = lanes[0] + lanes[1];
  return {hi, sum_residual(hi, lanes[0], lanes[1])};
}

template <class T>
struct NativeVector;
template <>
struct NativeVector<float> {
  typedef float type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct NativeVector<double> {
  typedef double type __attribute__((vector_size(kVectorBytes)));
};

/// Reduces four numbers: the lanes reduce by fours.
template <class T>
struct QuadVector;
template <>
struct QuadVector<float> {
  typedef float type __attribute__((vector_size(4 * sizeof(float))));
};
template <>
struct QuadVector<double> {
  typedef double type __attribute__((vector_size(4 * sizeof(double))));
};

/// Elements that fill a vector, and one element; the words are bfloat16.
template <class T>
[[gnu::always_inline]] inline void load_row_vector(typename NativeVector<T>::type& to, const T* x) {
  __builtin_memcpy(&to, x, sizeof(to));
}
[[gnu::always_inline]] inline void load_row_vector(FloatVector& to, const std::uint16_t* x) {
  to = bf16_to_floats(x);
}
template <class T>
[[gnu::always_inline]] inline T load_one(const T* x) {
  return *x;
}
[[gnu::always_inline]] inline float load_one(const std::uint16_t* x) { return bf16_to_float(*x); }

/// Computes lanes[r*16 ..], the 16 lanes of row r of x, or of x * x with every product rounded. The rows'
/// additions are independent of each other.
template <int kRows, class T, bool kSquare, class Stored>
[[gnu::always_inline]] inline void sum_lanes(T* lanes, const Stored* x, std::int64_t n,
                                             std::int64_t row_stride) {
  using Vector = typename NativeVector<T>::type;
  constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(T));
  constexpr int kVectors = kLanes / kPerVector;
  Vector sums[kRows * kVectors];
  for (int i = 0; i < kRows * kLanes; ++i) lanes[i] = static_cast<T>(-0.0);
  __builtin_memcpy(sums, lanes, sizeof(sums));
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int v = 0; v < kRows * kVectors; ++v) {
      Vector value;
      load_row_vector(value, x + v / kVectors * row_stride + i + v % kVectors * kPerVector);
      sums[v] += kSquare ? value * value : value;
    }
  }
  __builtin_memcpy(lanes, sums, sizeof(sums));
  for (int r = 0; r < kRows; ++r) {
    for (std::int64_t i = whole; i < n; ++i) {
      const T value = load_one(x + r * row_stride + i);
      lanes[r * kLanes + i - whole] += kSquare ? value * value : value;
    }
  }
}

/// Sum of x, or of x * x.
template <class T, bool kSquare, class Stored = T>
Sum<T> lane_sum(const Stored* x, std::int64_t n) {
  if (n == 0) return {0, 0};
  alignas(64) T lanes[kLanes];
  sum_lanes<1, T, kSquare>(lanes, x, n, 0);
  return reduce_lanes(lanes);
}

/// Reduces the lanes of four rows; lo may be null.
template <class T>
[[gnu::always_inline]] inline void reduce_four_lanes(T* hi, T* lo, const T* lanes) {
  using Quad = typename QuadVector<T>::type;
  Quad row[4];
  for (int r = 0; r < 4; ++r) {
    Quad q[4];
    __builtin_memcpy(q, lanes + r * kLanes, sizeof(q));
    row[r] = (q[0] + q[2]) + (q[1] + q[3]);
  }
  // Lanes 0 and 2, 1 and 3 of two rows are added; then the sums of all four rows.
  const Quad early = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5) +
                     __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Quad late = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5) +
                    __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Quad first = __builtin_shufflevector(early, late, 0, 1, 4, 5);
  const Quad second = __builtin_shufflevector(early, late, 2, 3, 6, 7);
  const Quad sums = first + second;
  __builtin_memcpy(hi, &sums, sizeof(sums));
  for (int r = 0; lo != nullptr && r < 4; ++r) lo[r] = sum_residual(sums[r], first[r], second[r]);
}

/// Sum like lane_sum, for four rows; lo may be null.
template <class T, bool kSquare, class Stored = T>
void four_lane_sums(T* hi, T* lo, const Stored* x, std::int64_t n, std::int64_t row_stride) {
  alignas(64) T lanes[4 * kLanes];
  sum_lanes<4, T, kSquare>(lanes, x, n, row_stride);
  reduce_four_lanes(hi, lo, lanes);
}

/// Product of x in the order of sums; the padding lanes' 1 is its identity.
template <class T>
T lane_product(const T* x, std::int64_t n) {
  alignas(64) T lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = 1;
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lanes[lane] * x[i + lane];
  }
  for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] = lanes[i - whole] * x[i];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] * lanes[i + width];
  }
  return lanes[0];
}

// Key of a float: its bits, read as a sign-magnitude integer, are ordered like a two's complement integer
// after flipping the magnitude bits of negatives; -0 < +0 then, and integer maxima vectorise where float
// ones with NaN do not.
[[gnu::always_inline]] inline std::int32_t order_key(float x) {
  const std::uint32_t u = bits_of(x);
  return static_cast<std::int32_t>((u >> 31) != 0 ? u ^ 0x7fffffffU : u);
}
[[gnu::always_inline]] inline std::int64_t order_key(double x) {
  const std::uint64_t u = bits_of(x);
  return static_cast<std::int64_t>((u >> 63) != 0 ? u ^ 0x7fffffffffffffffULL : u);
}
inline float from_order_key(std::int32_t key) {
  const std::uint32_t u = static_cast<std::uint32_t>(key);
  return from_bits(key < 0 ? u ^ 0x7fffffffU : u);
}
inline double from_order_key(std::int64_t key) {
  const std::uint64_t u = static_cast<std::uint64_t>(key);
  return from_bits(key < 0 ? u ^ 0x7fffffffffffffffULL : u);
}

/// Extreme of a row by keys.
template <class T, bool kMaximum>
[[gnu::always_inline]] inline T extreme_by_keys(const T* x, std::int64_t n) {
  const T identity = static_cast<T>(kMaximum ? -kInfF64 : kInfF64);
  auto best = order_key(identity);
  decltype(best) unordered = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto key = order_key(x[i]);
    best = (kMaximum ? key > best : key < best) ? key : best;
    unordered |= x[i] != x[i] ? 1 : 0;
  }
  return unordered != 0 ? static_cast<T>(kNanF64) : from_order_key(best);
}

#if defined(__AVX512F__)
/// The larger or the smaller of numbers, by an instruction that orders -0 before +0.
template <bool kLargest>
[[gnu::always_inline]] inline FloatVector extreme(FloatVector a, FloatVector b) {
  return (FloatVector)_mm512_maskz_range_ps(0xffff, (__m512)a, (__m512)b, kLargest ? 5 : 4);
}
template <bool kLargest>
[[gnu::always_inline]] inline DoubleVector extreme(DoubleVector a, DoubleVector b) {
  return (DoubleVector)_mm512_maskz_range_pd(0xff, (__m512d)a, (__m512d)b, kLargest ? 5 : 4);
}
/// Mask bits of the elements of which a or b is NaN, added to the bits of `mask`.
[[gnu::always_inline]] inline __mmask16 or_nan(__mmask16 mask, FloatVector a, FloatVector b) {
  return _kor_mask16(mask, _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q));
}
[[gnu::always_inline]] inline __mmask16 or_nan(__mmask16 mask, DoubleVector a, DoubleVector b) {
  return _kor_mask16(mask, _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q));
}

/// Extreme of the elements of a vector.
template <bool kLargest>
[[gnu::always_inline]] inline float extreme_element(FloatVector x) {
  x = extreme<kLargest>(x,
                        __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  x = extreme<kLargest>(x,
                        __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  x = extreme<kLargest>(x,
                        __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  x = extreme<kLargest>(x,
                        __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return x[0];
}
template <bool kLargest>
[[gnu::always_inline]] inline double extreme_element(DoubleVector x) {
  x = extreme<kLargest>(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  x = extreme<kLargest>(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5));
  x = extreme<kLargest>(x, __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6));
  return x[0];
}

/// Extreme of a row of at least four vectors. The last ones may contain elements a second time.
template <class T, bool kMaximum>
[[gnu::always_inline]] inline T extreme_by_vectors(const T* x, std::int64_t n) {
  using Vector = typename NativeVector<T>::type;
  constexpr std::int64_t kStep = 4 * kVectorBytes / static_cast<int>(sizeof(T));
  Vector best[4];
  __builtin_memcpy(best, x, sizeof(best));
  __mmask16 nan[2] = {or_nan(0, best[0], best[1]), or_nan(0, best[2], best[3])};
  for (std::int64_t i = kStep; i < n; i += kStep) {
    Vector v[4];
    __builtin_memcpy(v, x + (i + kStep <= n ? i : n - kStep), sizeof(v));
    for (int k = 0; k < 2; ++k) nan[k] = or_nan(nan[k], v[2 * k], v[2 * k + 1]);
    for (int k = 0; k < 4; ++k) best[k] = extreme<kMaximum>(best[k], v[k]);
  }
  if (_kor_mask16(nan[0], nan[1]) != 0) return static_cast<T>(kNanF64);
  return extreme_element<kMaximum>(
      extreme<kMaximum>(extreme<kMaximum>(best[0], best[1]), extreme<kMaximum>(best[2], best[3])));
}

/// Extremes of four rows of at least two vectors. False, and nothing is written, if there is a NaN.
template <bool kMaximum>
[[gnu::always_inline]] inline bool four_extremes(float* out, const float* x, std::int64_t n,
                                                 std::int64_t row_stride) {
  constexpr std::int64_t kStep = 2 * kVectorBytes / 4;
  FloatVector best[4][2];
  __mmask16 nan = 0;
  for (int r = 0; r < 4; ++r) {
    __builtin_memcpy(best[r], x + r * row_stride, sizeof(best[r]));
    nan = or_nan(nan, best[r][0], best[r][1]);
  }
  for (std::int64_t i = kStep; i < n; i += kStep) {
    const float* from = x + (i + kStep <= n ? i : n - kStep);
    for (int r = 0; r < 4; ++r) {
      FloatVector v[2];
      __builtin_memcpy(v, from + r * row_stride, sizeof(v));
      nan = or_nan(nan, v[0], v[1]);
      for (int k = 0; k < 2; ++k) best[r][k] = extreme<kMaximum>(best[r][k], v[k]);
    }
  }
  if (nan != 0) return false;
  // Halves of two rows are combined, then of four, so that each quarter of the vector holds one element of
  // each row.
  FloatVector row[4], pair[2];
  for (int r = 0; r < 4; ++r) row[r] = extreme<kMaximum>(best[r][0], best[r][1]);
  for (int p = 0; p < 2; ++p) {
    const FloatVector a = row[2 * p], b = row[2 * p + 1];
    pair[p] = extreme<kMaximum>(
        __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29),
        __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31));
  }
  FloatVector all = extreme<kMaximum>(
      __builtin_shufflevector(pair[0], pair[1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
      __builtin_shufflevector(pair[0], pair[1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  all = extreme<kMaximum>(
      all, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  all = extreme<kMaximum>(
      all, __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  __builtin_memcpy(out, &all, 4 * sizeof(float));
  return true;
}
#endif

/// Maximum (or minimum) of a float row: NaN if any is NaN, -0 < +0, -inf (+inf) if empty.
template <class T, bool kMaximum>
T extreme_of(const T* x, std::int64_t n) {
#if defined(__AVX512F__)
  if (n >= 4 * kVectorBytes / static_cast<int>(sizeof(T))) return extreme_by_vectors<T, kMaximum>(x, n);
#endif
  return extreme_by_keys<T, kMaximum>(x, n);
}

}  // namespace
}  // namespace popsr::kernels
