// Reductions of rows; the order of float sums is in lanes-inl.h.
#pragma once

#include "popsr/kernels/level/simd/lanes-inl.h"

namespace popsr::kernels {
namespace {

/// True for rows beyond the caches: memory gives one long row after another faster than several at a time.
template <class Stored>
[[gnu::always_inline]] inline bool is_streamed(std::int64_t rows, std::int64_t n) {
  constexpr std::int64_t kLongRow = 1 << 10, kCached = 3 << 19;
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(Stored));
  return bytes >= kLongRow && rows * bytes >= kCached;
}

/// Reduction of rows of floats; `Stored` is T, or a word that holds a bfloat16.
template <class T, bool kSquare, class Stored>
void sum_float_rows(void* hi, void* lo, const void* in, std::int64_t rows, std::int64_t n,
                    std::int64_t row_stride) {
  T* out = static_cast<T*>(hi);
  T* rest = static_cast<T*>(lo);
  const Stored* x = static_cast<const Stored*>(in);
  std::int64_t r = 0;
  const bool together = n != 0 && !is_streamed<Stored>(rows, n);
  for (; together && r + 4 <= rows; r += 4) {
    four_lane_sums<T, kSquare>(out + r, rest == nullptr ? nullptr : rest + r, x + r * row_stride, n,
                               row_stride);
  }
  for (; r < rows; ++r) {
    const Sum<T> sum = lane_sum<T, kSquare>(x + r * row_stride, n);
    out[r] = sum.hi;
    if (rest != nullptr) rest[r] = sum.lo;
  }
}

template <class T, bool kSquare>
void sum_rows(void* hi, void* lo, const void* in, std::int64_t rows, std::int64_t n,
              std::int64_t row_stride) {
  if constexpr (Traits<T>::kFloat) {
    sum_float_rows<T, kSquare, T>(hi, lo, in, rows, n, row_stride);
  } else {
    T* out = static_cast<T*>(hi);
    T* rest = static_cast<T*>(lo);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* x = static_cast<const T*>(in) + r * row_stride;
      Word<T> sum = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const Word<T> value = static_cast<Word<T>>(x[i]);
        sum += kSquare ? value * value : value;
      }
      out[r] = static_cast<T>(sum);
      if (rest != nullptr) rest[r] = 0;
    }
  }
}

template <class T>
void product_rows(void* hi, void*, const void* in, std::int64_t rows, std::int64_t n,
                  std::int64_t row_stride) {
  T* out = static_cast<T*>(hi);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* x = static_cast<const T*>(in) + r * row_stride;
    if constexpr (Traits<T>::kFloat) {
      out[r] = lane_product<T>(x, n);
    } else {
      Word<T> product = 1;
      for (std::int64_t i = 0; i < n; ++i) product *= static_cast<Word<T>>(x[i]);
      out[r] = static_cast<T>(product);
    }
  }
}

template <class T, bool kMaximum>
void extreme_rows(void* hi, void*, const void* in, std::int64_t rows, std::int64_t n,
                  std::int64_t row_stride) {
  T* out = static_cast<T*>(hi);
  std::int64_t r = 0;
#if defined(__AVX512F__)
  if constexpr (Traits<T>::kFloat && sizeof(T) == sizeof(float)) {
    const bool together = n >= kVectorBytes / 2 && !is_streamed<T>(rows, n);
    const T* x = static_cast<const T*>(in);
    while (together && r + 4 <= rows && four_extremes<kMaximum>(out + r, x + r * row_stride, n, row_stride))
      r += 4;
  }
#endif
  for (; r < rows; ++r) {
    const T* x = static_cast<const T*>(in) + r * row_stride;
    if constexpr (Traits<T>::kFloat) {
      out[r] = extreme_of<T, kMaximum>(x, n);
    } else {
      T best = kMaximum ? lowest_integer<T>() : highest_integer<T>();
      for (std::int64_t i = 0; i < n; ++i) best = (kMaximum ? x[i] > best : x[i] < best) ? x[i] : best;
      out[r] = best;
    }
  }
}

/// Extremes of rows of bfloat16, whose keys are ordered as those of lanes-inl.h are; the results are floats.
template <bool kMaximum>
void extreme_rows_bf16(void* hi, void*, const void* in, std::int64_t rows, std::int64_t n,
                       std::int64_t row_stride) {
  constexpr std::uint16_t kInfinity = 0x7f80, kMagnitude = 0x7fff;
  float* out = static_cast<float*>(hi);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint16_t* x = static_cast<const std::uint16_t*>(in) + r * row_stride;
    // Keys of the infinity that every number beats.
    std::int16_t best = static_cast<std::int16_t>(kMaximum ? ~kInfinity : kInfinity);
    std::int16_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int16_t magnitude = static_cast<std::int16_t>(x[i] & kMagnitude);
      const std::int16_t key =
          static_cast<std::int16_t>(static_cast<std::int16_t>(x[i]) < 0 ? x[i] ^ kMagnitude : x[i]);
      best = (kMaximum ? key > best : key < best) ? key : best;
      largest = magnitude > largest ? magnitude : largest;
    }
    const std::uint16_t bits = static_cast<std::uint16_t>(best < 0 ? best ^ kMagnitude : best);
    out[r] = largest > kInfinity ? kNanF32 : bf16_to_float(bits);
  }
}

/// Logical or (maximum, empty: 0) or and (minimum, empty: 1) of bytes that hold 0 or 1.
template <bool kMaximum>
void extreme_rows_bool(void* hi, void*, const void* in, std::int64_t rows, std::int64_t n,
                       std::int64_t row_stride) {
  std::uint8_t* out = static_cast<std::uint8_t*>(hi);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* x = static_cast<const std::uint8_t*>(in) + r * row_stride;
    std::uint32_t best = kMaximum ? 0 : 1;
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (kMaximum)
        best |= x[i];
      else
        best &= x[i];
    }
    out[r] = static_cast<std::uint8_t>(best);
  }
}

}  // namespace
}  // namespace popsr::kernels
