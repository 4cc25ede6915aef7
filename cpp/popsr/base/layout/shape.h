// Shapes of dense row-major tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "popsr/base/dtype.h"

namespace popsr {

using Shape = std::vector<std::int64_t>;

/// Product of the extents; 1 for a scalar.
std::int64_t num_elements(const Shape& shape);

/// Row-major strides in elements.
Shape row_major_strides(const Shape& shape);

/// NumPy broadcasting of two shapes; throws ShapeError prefixed with `op`.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);

/// Strides in elements for reading `shape` as `target` (0 where broadcast). `shape` must broadcast to it.
Shape broadcast_strides(const Shape& shape, const Shape& target);

/// Maps a negative axis to a non-negative one; throws AttributeValueError prefixed with `op` if out of range.
std::int64_t normalize_axis(std::string_view op, std::int64_t axis, std::size_t rank);

/// Text such as "[4, 8]" or "f32[4, 8]".
std::string to_string(const Shape& shape);
std::string to_string(DType dtype, const Shape& shape);

}  // namespace popsr
