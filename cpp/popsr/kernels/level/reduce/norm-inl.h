// Rows that are normalised: see NormKernels for what each function gives.
//
// Sums go through the lanes of lanes-inl.h. One row is one chain of additions, so several rows are summed
// side by side: their chains fill the time that each waits for its last addition.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/level/simd/lanes-inl.h"

namespace popsr::kernels {
namespace {

template <class T>
using VectorOf = typename NativeVector<T>::type;
template <class T>
inline constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kVectors = kLanes / kPerVector<T>;
/// Rows that share a loop.
template <class T>
inline constexpr int kTogether = kVectors<T> < 4 ? 4 / kVectors<T> : 1;

template <class T>
[[gnu::always_inline]] inline VectorOf<T> load(const T* x) {
  VectorOf<T> value;
  __builtin_memcpy(&value, x, sizeof(value));
  return value;
}

struct Plain {
  template <class V, class T>
  [[gnu::always_inline]] static V apply(V x, T) {
    return x;
  }
};
struct SquaredDistance {
  template <class V, class T>
  [[gnu::always_inline]] static V apply(V x, T centre) {
    const V d = x - centre;
    return d * d;
  }
};

/// out[r] = sum over a row of Term(x, centre[r]); rows follow each other.
template <class T, int kRows, class Term>
[[gnu::always_inline]] inline void row_sums(T* out, const T* x, const T* centre, std::int64_t n) {
  VectorOf<T> sums[kRows][kVectors<T>];
  alignas(64) T lanes[kLanes];
  for (T& lane : lanes) lane = static_cast<T>(-0.0);
  for (auto& row : sums) __builtin_memcpy(row, lanes, sizeof(lanes));
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors<T>; ++v) {
        sums[r][v] += Term::apply(load(x + r * n + i + v * kPerVector<T>), centre[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(lanes, sums[r], sizeof(lanes));
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += Term::apply(x[r * n + i], centre[r]);
    out[r] = n == 0 ? static_cast<T>(0) : reduce_lanes(lanes).hi;
  }
}

template <class T>
[[gnu::always_inline]] inline T root(T x) {
  if constexpr (sizeof(T) == sizeof(float))
    return __builtin_sqrtf(x);
  else
    return __builtin_sqrt(x);
}

template <class T, int kRows>
[[gnu::always_inline]] inline void stats_of(T* stats, const T* x, std::int64_t n, T eps) {
  const T count = static_cast<T>(n);
  T mean[kRows] = {};
  T variance[kRows];
  row_sums<T, kRows, Plain>(variance, x, mean, n);
  for (int r = 0; r < kRows; ++r) mean[r] = variance[r] / count;
  row_sums<T, kRows, SquaredDistance>(variance, x, mean, n);
  for (int r = 0; r < kRows; ++r) {
    stats[2 * r] = mean[r];
    stats[2 * r + 1] = static_cast<T>(1) / root(variance[r] / count + eps);
  }
}

template <class T>
void norm_stats(void* stats, const void* x, std::int64_t rows, std::int64_t n, double eps) {
  T* to = static_cast<T*>(stats);
  const T* from = static_cast<const T*>(x);
  const T e = static_cast<T>(eps);
  std::int64_t r = 0;
  for (; r + kTogether<T> <= rows; r += kTogether<T>)
    stats_of<T, kTogether<T>>(to + 2 * r, from + r * n, n, e);
  for (; r < rows; ++r) stats_of<T, 1>(to + 2 * r, from + r * n, n, e);
}

template <class T>
void norm_each(void* out, const void* x, const void* stats, const void* scale, const void* shift,
               std::int64_t n) {
  T* to = static_cast<T*>(out);
  const T* from = static_cast<const T*>(x);
  const T* a = static_cast<const T*>(scale);
  const T* b = static_cast<const T*>(shift);
  const T mean = static_cast<const T*>(stats)[0];
  const T inverse = static_cast<const T*>(stats)[1];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = (from[i] - mean) * inverse * a[i] + b[i];
}

template <class T>
void norm_all(void* out, const void* x, const void* stats, const void* scale, const void* shift,
              std::int64_t n) {
  T* to = static_cast<T*>(out);
  const T* from = static_cast<const T*>(x);
  const T a = *static_cast<const T*>(scale);
  const T b = *static_cast<const T*>(shift);
  const T mean = static_cast<const T*>(stats)[0];
  const T inverse = static_cast<const T*>(stats)[1];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = (from[i] - mean) * inverse * a + b;
}

template <class T>
void norm_sums(void* sums, const void* x, const void* g, const void* stats, std::int64_t n) {
  const T* values = static_cast<const T*>(x);
  const T* slopes = static_cast<const T*>(g);
  const T mean = static_cast<const T*>(stats)[0];
  const T inverse = static_cast<const T*>(stats)[1];
  VectorOf<T> plain[kVectors<T>];
  VectorOf<T> weighted[kVectors<T>];
  alignas(64) T lanes[2][kLanes];
  for (auto& row : lanes) {
    for (T& lane : row) lane = static_cast<T>(-0.0);
  }
  __builtin_memcpy(plain, lanes[0], sizeof(plain));
  __builtin_memcpy(weighted, lanes[1], sizeof(weighted));
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int v = 0; v < kVectors<T>; ++v) {
      const std::int64_t at = i + v * kPerVector<T>;
      const VectorOf<T> slope = load(slopes + at);
      plain[v] += slope;
      weighted[v] += slope * ((load(values + at) - mean) * inverse);
    }
  }
  __builtin_memcpy(lanes[0], plain, sizeof(plain));
  __builtin_memcpy(lanes[1], weighted, sizeof(weighted));
  for (std::int64_t i = whole; i < n; ++i) {
    lanes[0][i - whole] += slopes[i];
    lanes[1][i - whole] += slopes[i] * ((values[i] - mean) * inverse);
  }
  for (int k = 0; k < 2; ++k)
    static_cast<T*>(sums)[k] = n == 0 ? static_cast<T>(0) : reduce_lanes(lanes[k]).hi;
}

template <class T>
void norm_slope(void* out, const void* x, const void* g, const void* stats, const void* sums,
                std::int64_t n) {
  T* to = static_cast<T*>(out);
  const T* values = static_cast<const T*>(x);
  const T* slopes = static_cast<const T*>(g);
  const T mean = static_cast<const T*>(stats)[0];
  const T inverse = static_cast<const T*>(stats)[1];
  const T plain = static_cast<const T*>(sums)[0] / static_cast<T>(n);
  const T weighted = static_cast<const T*>(sums)[1] / static_cast<T>(n);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const T unit = (values[i] - mean) * inverse;
    to[i] = ((slopes[i] - plain) - unit * weighted) * inverse;
  }
}

template <class T>
void norm_accumulate(void* scale, void* shift, const void* x, const void* dy, const void* stats,
                     std::int64_t n) {
  T* a = static_cast<T*>(scale);
  T* b = static_cast<T*>(shift);
  const T* values = static_cast<const T*>(x);
  const T* slopes = static_cast<const T*>(dy);
  const T mean = static_cast<const T*>(stats)[0];
  const T inverse = static_cast<const T*>(stats)[1];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    a[i] += slopes[i] * ((values[i] - mean) * inverse);
    b[i] += slopes[i];
  }
}

template <class T>
constexpr NormKernels kNorm = {norm_stats<T>, norm_each<T>,  norm_all<T>,
                               norm_sums<T>,  norm_slope<T>, norm_accumulate<T>};

}  // namespace
}  // namespace popsr::kernels
