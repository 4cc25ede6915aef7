// Exact means of integers: sums with enough bits, the quotient rounded towards zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/base/dtype.h"

namespace popsr {

/// Means of tiles, each of `count` elements of an integer dtype.
class IntegerMean {
 public:
  /// Makes the means; if `dtype` is not of integers, no other member may be called.
  IntegerMean(DType dtype, std::int64_t count);

  /// Bytes of the sums of `n` means, aligned to 16; they start as zeros.
  std::size_t sum_bytes(std::int64_t n) const { return static_cast<std::size_t>(n) * sum_size_; }
  /// Adds `length` elements to each of `n` sums: elements of sum i start at from[i * step].
  void add(void* sums, const std::byte* from, std::int64_t n, std::int64_t length, std::int64_t step) const {
    add_(sums, from, n, length, step);
  }
  /// Stores to[i] = sums[i] / count; 0 if the count is 0.
  void store(std::byte* to, const void* sums, std::int64_t n) const { store_(to, sums, n, count_); }

 private:
  using Add = void (*)(void*, const std::byte*, std::int64_t, std::int64_t, std::int64_t);
  using Store = void (*)(std::byte*, const void*, std::int64_t, std::int64_t);

  void choose(DType dtype);
  template <class T, class Sum>
  void set();

  Add add_ = nullptr;
  Store store_ = nullptr;
  std::size_t sum_size_ = 0;
  std::int64_t count_;
};

}  // namespace popsr
