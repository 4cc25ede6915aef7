// Nested loops over the elements of strided arrays: the one place where adjacent dimensions are merged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "popsr/base/shape.h"

namespace popsr {

/// The loops over several arrays of one shape, innermost first. Extents of 1 are dropped, and adjacent
/// dimensions are one loop where the strides of all arrays allow it. A nest of one element is one loop of
/// extent 1. Strides are in elements or in bytes, as the user of the nest decides; they may be 0 or negative.
class LoopNest {
 public:
  explicit LoopNest(std::size_t arrays);
  /// The loops over an array of that shape, outermost dimension first; one Shape of strides per array.
  LoopNest(const Shape& shape, std::span<const Shape> strides);

  void add_outer(std::int64_t extent, std::span<const std::int64_t> strides);
  /// For a nest of one array.
  void add_outer(std::int64_t extent, std::int64_t stride) { add_outer(extent, {&stride, 1}); }
  /// This nest inside one more loop.
  LoopNest inside(std::int64_t extent, std::span<const std::int64_t> strides) const;
  /// The loops from number `first` on.
  LoopNest outer(std::size_t first) const;

  std::size_t rank() const { return rank_; }
  std::size_t arrays() const { return width_ - 1; }
  std::int64_t extent(std::size_t loop) const { return loops_[loop * width_]; }
  std::int64_t stride(std::size_t loop, std::size_t array = 0) const {
    return loops_[loop * width_ + 1 + array];
  }
  /// Elements.
  std::int64_t count() const;
  /// Offset in one array of element `flat` in C order.
  std::int64_t offset(std::int64_t flat, std::size_t array = 0) const;
  /// True if the elements of the array are adjacent in C order, `unit` apart.
  bool contiguous(std::size_t array, std::int64_t unit) const;

 private:
  std::size_t rank_ = 1;
  std::size_t width_;                ///< Of a loop: its extent and the stride of each array.
  std::vector<std::int64_t> loops_;  ///< [rank][width]
};

/// A fixed number of integers, in place where they are few.
class SmallInts {
 public:
  explicit SmallInts(std::size_t n) : more_(n > kInPlace ? n : 0) {}
  std::int64_t& operator[](std::size_t i) { return more_.empty() ? few_[i] : more_[i]; }
  std::int64_t operator[](std::size_t i) const { return more_.empty() ? few_[i] : more_[i]; }

 private:
  static constexpr std::size_t kInPlace = 8;
  std::array<std::int64_t, kInPlace> few_ = {};
  std::vector<std::int64_t> more_;
};

/// An element of a nest: its index in each loop and its offset in each array.
class NestPosition {
 public:
  NestPosition(const LoopNest& nest, std::int64_t flat)
      : nest_(nest), index_(nest.rank()), offset_(nest.arrays()) {
    if (flat != 0) seek(flat);
  }

  std::int64_t index(std::size_t loop) const { return index_[loop]; }
  std::int64_t offset(std::size_t array) const { return offset_[array]; }
  /// Elements from here to the end of the innermost loop.
  std::int64_t left_in_row() const { return nest_.extent(0) - index_[0]; }

  void seek(std::int64_t flat);
  /// Moves on by at most left_in_row().
  void advance(std::int64_t count);
  /// Moves on to element `flat`, which is `count` after this one. For nests of at least two loops.
  void move_to(std::int64_t flat, std::int64_t count);

 private:
  const LoopNest& nest_;
  SmallInts index_, offset_;
};

/// n elements of `size` bytes from `from`, `from_step` bytes apart, to `to`.
void copy_elements(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                   std::int64_t n, std::int64_t size);

/// A side of copy_range without an array of the nest: the elements of the range, one after another.
inline constexpr std::size_t kContiguous = ~std::size_t{0};

/// Copies elements begin .. begin + n - 1 of a nest with strides in bytes, of `size` bytes each, from one
/// array to another: `to` and `from` are element 0 of their array, or the range itself (kContiguous).
void copy_range(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
                std::size_t from_array, std::int64_t size, std::int64_t begin, std::int64_t n);

}  // namespace popsr
