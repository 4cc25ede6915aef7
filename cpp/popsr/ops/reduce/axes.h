// Reduced axes, and the shape that is left.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

inline constexpr Attr<std::vector<std::int64_t>> kAxes{"axis"};
inline constexpr Attr<bool> kKeepDims{"keepdims"};

/// Reduced axes in ascending order, from attribute kAxes; all axes without the attribute.
std::vector<std::int64_t> reduced_axes(const Op& op, std::size_t rank);
Shape reduced_shape(const Shape& shape, const std::vector<std::int64_t>& axes, bool keepdims);
/// Number of elements that become one.
std::int64_t reduced_count(const Shape& shape, const std::vector<std::int64_t>& axes);
/// Output of a reduction over kAxes with kKeepDims.
std::vector<OutputDef> infer_reduction(const InferContext& context);
/// Output of a selection; like infer_reduction, but ShapeError if there are no elements to select from.
std::vector<OutputDef> infer_selection(const InferContext& context);
/// Value `t`, shaped as the output, with the reduced axes kept as extents of 1.
GradValue with_reduced_axes(Grad& g, const GradValue& t);

}  // namespace popsr
