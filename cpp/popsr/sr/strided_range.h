// Ranges of a strided array, in C order, to and from contiguous buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace popsr::kernels {

/// Axes of several arrays of one shape, those of length 1 dropped and neighbours merged where every array
/// allows it.
struct StridedLoop {
  std::vector<std::int64_t> shape;
  std::vector<std::vector<std::int64_t>> strides;  ///< bytes, by array
  std::int64_t n = 1;

  StridedLoop(const std::vector<std::int64_t>& full_shape,
              const std::vector<std::vector<std::int64_t>>& full_strides);
  /// One run without gaps of elements of that size?
  bool contiguous(std::size_t array, std::int64_t element_size) const;
};

/// Elements begin .. begin + n - 1 of an array of that loop.
void gather_range(std::byte* out, const std::byte* in, const StridedLoop& loop, std::size_t array,
                  std::int64_t element_size, std::int64_t begin, std::int64_t n);
void scatter_range(std::byte* out, const std::byte* in, const StridedLoop& loop, std::size_t array,
                   std::int64_t element_size, std::int64_t begin, std::int64_t n);

}  // namespace popsr::kernels
