// Reduced axes: which they are, and what is left of a shape.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace popsr
