// Nested loops over the elements of strided arrays: the one place where adjacent dimensions are merged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "popsr/base/layout/shape.h"

namespace popsr {

/// Array of integers, stored in place up to N of them, otherwise on the heap.
template <std::size_t N>
class SmallInts {
 public:
  explicit SmallInts(std::size_t size) : size_(size) {
    if (size > N) more_.resize(size);
  }

  std::size_t size() const { return size_; }
  std::int64_t* data() { return size_ <= N ? few_.data() : more_.data(); }
  const std::int64_t* data() const { return size_ <= N ? few_.data() : more_.data(); }
  std::int64_t& operator[](std::size_t i) { return data()[i]; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  void grow(std::size_t size) {
    if (size > N && size_ <= N) more_.assign(few_.begin(), few_.begin() + static_cast<std::ptrdiff_t>(size_));
    if (size > N) more_.resize(size);
    size_ = size;
  }

 private:
  std::size_t size_;
  std::array<std::int64_t, N> few_ = {};
  std::vector<std::int64_t> more_;
};

/// Loops over several arrays of one shape, innermost first. Extents of 1 are dropped, and adjacent dimensions
/// become one loop where the strides of all arrays allow it. A nest of one element is one loop of extent 1.
/// Strides are in elements or in bytes, as the user of the nest decides; they may be 0 or negative.
class LoopNest {
 public:
  explicit LoopNest(std::size_t arrays);
  /// Makes the loops over arrays of that shape, outermost dimension first; one Shape of strides per array.
  LoopNest(const Shape& shape, std::span<const Shape> strides);

  void add_outer(std::int64_t extent, std::span<const std::int64_t> strides);
  /// Adds an outer loop to a nest of one array.
  void add_outer(std::int64_t extent, std::int64_t stride) { add_outer(extent, {&stride, 1}); }
  /// Nest of the loops from number `first` on.
  LoopNest outer(std::size_t first) const;

  std::size_t rank() const { return rank_; }
  std::size_t arrays() const { return width_ - 1; }
  std::int64_t extent(std::size_t loop) const { return loops_[loop * width_]; }
  std::int64_t stride(std::size_t loop, std::size_t array = 0) const {
    return loops_[loop * width_ + 1 + array];
  }
  /// Number of elements.
  std::int64_t count() const;
  /// Offset in one array of element `flat` in C order.
  std::int64_t offset(std::int64_t flat, std::size_t array = 0) const {
    if (rank_ == 1) return flat * stride(0, array);
    return offset_of(flat, array);
  }
  /// True if the elements of the array are adjacent in C order, `unit` apart.
  bool contiguous(std::size_t array, std::int64_t unit) const;

 private:
  friend class NestPosition;

  std::int64_t offset_of(std::int64_t flat, std::size_t array) const;
  const std::int64_t* loop(std::size_t number) const { return loops_.data() + number * width_; }

  std::size_t rank_ = 1;
  std::size_t width_;    ///< Integers per loop: its extent and the stride of each array.
  SmallInts<24> loops_;  ///< Loops as [rank][width].
};

/// Position of an element in a nest: its index in each loop and its offset in each array.
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
  /// Number of whole rows from here on that are one step apart, at most `most`; 0 inside a row.
  std::int64_t rows_ahead(std::int64_t most) const;

  void seek(std::int64_t flat);
  /// Advances by `count` steps of a loop, at most to its end.
  void advance(std::int64_t count, std::size_t loop = 0);
  /// Advances to element `flat`, which is `count` elements after this one.
  void move_to(std::int64_t flat, std::int64_t count);

 private:
  const LoopNest& nest_;
  SmallInts<8> index_, offset_;
};

/// Copies n elements of `size` bytes, `from_step` bytes apart, to `to`, `to_step` bytes apart.
void copy_elements(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                   std::int64_t n, std::int64_t size);

/// Marks a side of copy_range that is not an array of the nest but the elements of the range, one after
/// another.
inline constexpr std::size_t kContiguous = ~std::size_t{0};

/// Copies elements begin .. begin + n - 1 of a nest with strides in bytes, of `size` bytes each, from one
/// array to another: `to` and `from` are element 0 of their array, or the range itself (kContiguous). An
/// array that is copied from may have strides of 0.
void copy_range(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
                std::size_t from_array, std::int64_t size, std::int64_t begin, std::int64_t n);
/// Overload for n elements from a position on.
void copy_range(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
                std::size_t from_array, std::int64_t size, const NestPosition& begin, std::int64_t n);

}  // namespace popsr
