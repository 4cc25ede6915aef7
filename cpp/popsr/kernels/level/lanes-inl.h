// Reductions of one contiguous row.
//
// Sums of floats follow one fixed order whatever the vector length: element i goes to lane i mod 16, lanes
// fold as a tree, see ReduceFn. Padding lanes hold -0, the identity of addition. Maxima and integer sums have
// no order.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr int kLanes = 16;
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Sum {
  T hi;
  T lo;
};

/// Folds the 16 lanes; lo is the remainder of the last addition.
template <class T>
[[gnu::always_inline]] inline Sum<T> fold_lanes(T* lanes) {
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

/// Sum of x, or of x * x with every product rounded.
template <class T, bool kSquare>
Sum<T> lane_sum(const T* x, std::int64_t n) {
  if (n == 0) return {0, 0};
  using Vector = typename NativeVector<T>::type;
  constexpr int kPerVector = kVectorBytes / static_cast<int>(sizeof(T));
  constexpr int kVectors = kLanes / kPerVector;
  Vector sums[kVectors];
  alignas(64) T lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<T>(-0.0);
  __builtin_memcpy(sums, lanes, sizeof(lanes));
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      Vector value;
      __builtin_memcpy(&value, x + i + v * kPerVector, sizeof(value));
      sums[v] += kSquare ? value * value : value;
    }
  }
  __builtin_memcpy(lanes, sums, sizeof(lanes));
  for (std::int64_t i = whole; i < n; ++i) lanes[i - whole] += kSquare ? x[i] * x[i] : x[i];
  return fold_lanes(lanes);
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

// A float whose bits are read as a sign-magnitude integer is ordered like a two's complement integer after
// flipping the magnitude bits of negatives; -0 < +0 then, and integer maxima vectorise where float ones with
// NaN do not.
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

/// Maximum (or minimum) of a float row: NaN if any is NaN, -0 < +0, -inf (+inf) if empty.
template <class T, bool kMaximum>
T extreme_of(const T* x, std::int64_t n) {
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

}  // namespace
}  // namespace popsr::kernels
