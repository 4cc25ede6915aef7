// Rows that are normalised: see NormKernels for the contract of each function.
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
/// Number of rows that share a loop.
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

/// Sums out[r] over a row of Term(x, centre[r]); rows follow each other.
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
  if (kTogether < T >> 2 && r + 2 <= rows) {
    stats_of<T, 2>(to + 2 * r, from + r * n, n, e);
    r += 2;
  }
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

/// Weights of a row: none, one for each element, or one for a run of elements.
enum class Weights { kNone, kEach, kRuns };

/// Slope g of one element, or of the elements of a vector.
template <Weights kWeights, class V, class W>
[[gnu::always_inline]] inline V weighted_slope(V dy, W weight) {
  if constexpr (kWeights == Weights::kNone)
    return dy;
  else if constexpr (kWeights == Weights::kEach)
    return dy * weight;
  else
    return weight * dy;
}

/// Sums of kRows rows, see NormKernels::sums; `stats` has a pair for each of them.
template <class T, int kRows, Weights kWeights>
[[gnu::always_inline]] inline void slope_sums(T* sums, const T* x, const T* dy, const T* const* weight,
                                              std::int64_t run, const T* const* stats, std::int64_t n) {
  VectorOf<T> plain[kRows][kVectors<T>];
  VectorOf<T> weighted[kRows][kVectors<T>];
  alignas(64) T lanes[kLanes];
  for (T& lane : lanes) lane = static_cast<T>(-0.0);
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(plain[r], lanes, sizeof(lanes));
    __builtin_memcpy(weighted[r], lanes, sizeof(lanes));
  }
  const std::int64_t whole = n - n % kLanes;
  const std::int64_t part = kWeights == Weights::kRuns ? run : whole;
  for (std::int64_t first = 0, number = 0; first < whole; first += part, ++number) {
    T scale[kRows];
    for (int r = 0; r < kRows; ++r) scale[r] = kWeights == Weights::kRuns ? weight[r][number] : T{};
    for (std::int64_t i = first; i < first + part; i += kLanes) {
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors<T>; ++v) {
          const std::int64_t in_row = i + v * kPerVector<T>, at = r * n + in_row;
          VectorOf<T> g = load(dy + at);
          if constexpr (kWeights == Weights::kEach) g = weighted_slope<kWeights>(g, load(weight[r] + in_row));
          if constexpr (kWeights == Weights::kRuns) g = weighted_slope<kWeights>(g, scale[r]);
          plain[r][v] += g;
          weighted[r][v] += g * ((load(x + at) - stats[r][0]) * stats[r][1]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const auto slope = [&](std::int64_t i) {
      return weighted_slope<kWeights>(dy[r * n + i], kWeights == Weights::kEach ? weight[r][i] : T{});
    };
    __builtin_memcpy(lanes, plain[r], sizeof(lanes));
    for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += slope(i);
    sums[2 * r] = n == 0 ? static_cast<T>(0) : reduce_lanes(lanes).hi;
    __builtin_memcpy(lanes, weighted[r], sizeof(lanes));
    for (std::int64_t i = whole; i < n; ++i)
      lanes[i - whole] += slope(i) * ((x[r * n + i] - stats[r][0]) * stats[r][1]);
    sums[2 * r + 1] = n == 0 ? static_cast<T>(0) : reduce_lanes(lanes).hi;
  }
}

/// First weight of row r.
template <class T>
[[gnu::always_inline]] inline const T* weight_of(const NormSlopes& g, std::int64_t r, std::int64_t n) {
  return static_cast<const T*>(g.weight) + (g.group + r) % g.groups * (n / g.run);
}

template <class T, Weights kWeights>
void weighted_sums(T* sums, const T* x, const NormSlopes& g, const T* stats, std::int64_t rows,
                   std::int64_t n, std::int64_t first, std::int64_t share) {
  const T* pairs[kTogether<T>] = {};
  const T* weights[kTogether<T>] = {};
  std::int64_t r = 0;
  const auto some = [&]<int kRows>() __attribute__((always_inline)) {
    for (int k = 0; k < kRows; ++k) {
      pairs[k] = stats + 2 * ((first + r + k) / share);
      if constexpr (kWeights != Weights::kNone) weights[k] = weight_of<T>(g, r + k, n);
    }
    slope_sums<T, kRows, kWeights>(sums + 2 * r, x + r * n, static_cast<const T*>(g.dy) + r * n, weights,
                                   g.run, pairs, n);
    r += kRows;
  };
  while (r + kTogether<T> <= rows) some.template operator()<kTogether<T>>();
  if constexpr (kTogether < T >> 2) {
    if (r + 2 <= rows) some.template operator()<2>();
  }
  while (r < rows) some.template operator()<1>();
}

template <class T>
void norm_sums(void* sums, const void* x, const NormSlopes& g, const void* stats, std::int64_t rows,
               std::int64_t n, std::int64_t first, std::int64_t share) {
  const auto sum = g.weight == nullptr ? weighted_sums<T, Weights::kNone>
                   : g.run == 1        ? weighted_sums<T, Weights::kEach>
                                       : weighted_sums<T, Weights::kRuns>;
  sum(static_cast<T*>(sums), static_cast<const T*>(x), g, static_cast<const T*>(stats), rows, n, first,
      share);
}

/// Slopes of elements first .. last - 1 of a row.
template <class T, Weights kWeights>
[[gnu::always_inline]] inline void slope_part(T* to, const T* x, const T* dy, const T* weight, T scale,
                                              const T* stats, T plain, T weighted, std::int64_t first,
                                              std::int64_t last) {
  const T mean = stats[0], inverse = stats[1];
#pragma GCC ivdep
  for (std::int64_t i = first; i < last; ++i) {
    const T unit = (x[i] - mean) * inverse;
    const T g = weighted_slope<kWeights>(dy[i], kWeights == Weights::kEach ? weight[i] : scale);
    to[i] = ((g - plain) - unit * weighted) * inverse;
  }
}

template <class T>
void norm_slope(void* out, const void* x, const NormSlopes& g, const void* stats, const void* sums,
                std::int64_t n) {
  T* to = static_cast<T*>(out);
  const T* values = static_cast<const T*>(x);
  const T* dy = static_cast<const T*>(g.dy);
  const T* pair = static_cast<const T*>(stats);
  const T plain = static_cast<const T*>(sums)[0] / static_cast<T>(n);
  const T weighted = static_cast<const T*>(sums)[1] / static_cast<T>(n);
  if (g.weight == nullptr)
    return slope_part<T, Weights::kNone>(to, values, dy, nullptr, T{}, pair, plain, weighted, 0, n);
  const T* weight = weight_of<T>(g, 0, n);
  if (g.run == 1)
    return slope_part<T, Weights::kEach>(to, values, dy, weight, T{}, pair, plain, weighted, 0, n);
  for (std::int64_t first = 0; first < n; first += g.run) {
    slope_part<T, Weights::kRuns>(to, values, dy, nullptr, *weight++, pair, plain, weighted, first,
                                  first + g.run);
  }
}

/// Statistics of kRows rows: sums wait in registers for the next of them.
template <class T, int kRows>
[[gnu::always_inline]] inline void accumulate_rows(T* scale, T* shift, const T* x, const T* dy,
                                                   const T* stats, std::int64_t n, std::int64_t row_stride,
                                                   std::int64_t stats_stride) {
  T mean[kRows], inverse[kRows];
  for (int r = 0; r < kRows; ++r) {
    mean[r] = stats[r * stats_stride];
    inverse[r] = stats[r * stats_stride + 1];
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    T a = scale[i];
    T b = shift[i];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const T slope = dy[r * row_stride + i];
      a += slope * ((x[r * row_stride + i] - mean[r]) * inverse[r]);
      b += slope;
    }
    scale[i] = a;
    shift[i] = b;
  }
}

template <class T>
void norm_accumulate(void* scale, void* shift, const void* x, const void* dy, const void* stats,
                     std::int64_t rows, std::int64_t n, std::int64_t row_stride, std::int64_t stats_stride) {
  constexpr int kSome = 4;
  T* a = static_cast<T*>(scale);
  T* b = static_cast<T*>(shift);
  const T* values = static_cast<const T*>(x);
  const T* slopes = static_cast<const T*>(dy);
  const T* pairs = static_cast<const T*>(stats);
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t at = r * row_stride;
    const T* pair = pairs + r * stats_stride;
    if (r + kSome <= rows) {
      accumulate_rows<T, kSome>(a, b, values + at, slopes + at, pair, n, row_stride, stats_stride);
      r += kSome;
    } else {
      accumulate_rows<T, 1>(a, b, values + at, slopes + at, pair, n, row_stride, stats_stride);
      r += 1;
    }
  }
}

template <class T>
constexpr NormKernels kNorm = {norm_stats<T>, norm_each<T>,  norm_all<T>,
                               norm_sums<T>,  norm_slope<T>, norm_accumulate<T>};

}  // namespace
}  // namespace popsr::kernels
