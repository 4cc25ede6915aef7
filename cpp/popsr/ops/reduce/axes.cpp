#include "popsr/ops/reduce/axes.h"

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"

namespace popsr {

using Ints = std::vector<std::int64_t>;

Ints reduced_axes(const Op& op, std::size_t rank) {
  const auto axes = op.find(kAxes);
  if (axes) return normalize_axes(op.def->name, *axes, rank);
  Ints all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Shape reduced_shape(const Shape& shape, const Ints& axes, bool keepdims) {
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    if (!reduced) result.push_back(shape[d]);
    if (reduced && keepdims) result.push_back(1);
  }
  return result;
}

std::int64_t reduced_count(const Shape& shape, const Ints& axes) {
  std::int64_t count = 1;
  for (const std::int64_t axis : axes) count *= shape[static_cast<std::size_t>(axis)];
  return count;
}

std::vector<OutputDef> infer_reduction(const InferContext& context) {
  const TensorType& type = context.type(0);
  const Ints axes = reduced_axes(context.op, type.shape.size());
  return {{{type.dtype, reduced_shape(type.shape, axes, context.get(kKeepDims))}}};
}

std::vector<OutputDef> infer_selection(const InferContext& context) {
  const Shape& shape = context.type(0).shape;
  if (reduced_count(shape, reduced_axes(context.op, shape.size())) == 0) {
    const std::string_view op = context.name();
    const std::string_view missing = op == "max" ? "largest" : op == "min" ? "smallest" : "middle";
    raise<ShapeError>("{}: there is no {} of no elements, got {}, expected reduced extents > 0", op, missing,
                      describe(context, 0));
  }
  return infer_reduction(context);
}

GradValue with_reduced_axes(Grad& g, const GradValue& t) {
  const Shape& from = g.in_type(0).shape;
  return g.reshape_to(t, reduced_shape(from, reduced_axes(g.op(), from.size()), true));
}

}  // namespace popsr
