// Reduced axes: which they are, what is left of a shape, and loop nests over either part.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

inline constexpr Attr<std::vector<std::int64_t>> kAxes{"axis"};
inline constexpr Attr<bool> kKeepDims{"keepdims"};

/// Reduced axes in ascending order, of attribute kAxes; all without the attribute.
std::vector<std::int64_t> reduced_axes(const Op& op, std::size_t rank);
Shape reduced_shape(const Shape& shape, const std::vector<std::int64_t>& axes, bool keepdims);
/// Elements that become one.
std::int64_t reduced_count(const Shape& shape, const std::vector<std::int64_t>& axes);
/// Output of a reduction over kAxes with kKeepDims.
std::vector<OutputDef> infer_reduction(const InferContext& context);
/// The same; ShapeError when no element would become one.
std::vector<OutputDef> infer_selection(const InferContext& context);
/// `t`, shaped as the output, with the reduced axes kept as extents of 1.
GradValue keep_reduced(Grad& g, const GradValue& t);

/// A loop nest over a tensor, innermost dimension first; strides in elements.
struct Dims {
  static constexpr std::size_t kMaxDims = 16;

  std::size_t rank = 0;
  std::array<std::int64_t, kMaxDims> extent = {};
  std::array<std::int64_t, kMaxDims> stride = {};

  void add_outer(std::int64_t size, std::int64_t step) {
    if (rank > 0 && step == extent[rank - 1] * stride[rank - 1]) {
      extent[rank - 1] *= size;
      return;
    }
    POPSR_CHECK(rank < kMaxDims);
    extent[rank] = size;
    stride[rank++] = step;
  }
  std::int64_t count() const {
    return std::accumulate(extent.begin(), extent.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::int64_t{1}, std::multiplies<>());
  }
  /// Offset of element `flat` in C order.
  std::int64_t offset(std::int64_t flat) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      sum += flat % extent[d] * stride[d];
      flat /= extent[d];
    }
    return sum;
  }
};

}  // namespace popsr
