#include "popsr/base/layout/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "popsr/base/error.h"

namespace popsr {

std::int64_t num_elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d > 1; --d) strides[d - 2] = strides[d - 1] * shape[d - 1];
  return strides;
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape result(rank, 1);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t x = d < rank - a.size() ? 1 : a[d - (rank - a.size())];
    const std::int64_t y = d < rank - b.size() ? 1 : b[d - (rank - b.size())];
    if (x != y && x != 1 && y != 1) {
      raise<ShapeError>("{}: shapes do not broadcast, got {} and {}, expected equal or 1 extents", op,
                        to_string(a), to_string(b));
    }
    result[d] = x == 1 ? y : x;
  }
  return result;
}

Shape broadcast_strides(const Shape& shape, const Shape& target) {
  const Shape own = row_major_strides(shape);
  Shape strides(target.size(), 0);
  const std::size_t lead = target.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) strides[lead + d] = shape[d] == 1 ? 0 : own[d];
  return strides;
}

std::int64_t normalize_axis(std::string_view op, std::int64_t axis, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r) {
    raise<AttributeValueError>("{}: axis out of range, got {}, expected {} <= axis < {}", op, axis, -r, r);
  }
  return axis < 0 ? axis + r : axis;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string to_string(DType dtype, const Shape& shape) {
  return std::string(info(dtype).short_name) + to_string(shape);
}

}  // namespace popsr
