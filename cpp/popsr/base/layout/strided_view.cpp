#include "popsr/base/layout/strided_view.h"

#include <algorithm>
#include <numeric>

namespace popsr {
namespace {

/// Number of steps along one axis of a dense tensor.
struct AxisStep {
  std::size_t axis;
  std::int64_t steps;
};

/// A distance in a dense tensor as steps of one of its axes; nullopt if it is none.
std::optional<AxisStep> axis_step(std::int64_t distance, const Shape& shape, const Shape& dense) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && distance % dense[d] == 0 && distance / dense[d] < shape[d]) {
      return AxisStep{d, distance / dense[d]};
    }
  }
  return std::nullopt;
}

}  // namespace

StridedView dense_view(const Shape& shape) { return {.shape = shape, .strides = row_major_strides(shape)}; }

std::optional<StridedView> compose(const StridedView& outer, const StridedView& inner) {
  if (num_elements(inner.shape) == 0) return std::nullopt;
  const Shape dense = row_major_strides(inner.shape);
  StridedView view{.shape = outer.shape, .strides = {}, .offset = inner.offset};
  Shape last(inner.shape.size());  // per axis of inner: the index of the last element of the result
  std::int64_t offset = outer.offset;
  for (std::size_t d = 0; d < last.size(); ++d) {
    last[d] = offset / dense[d];
    view.offset += last[d] * inner.strides[d];
    offset %= dense[d];
  }
  for (std::size_t i = 0; i < outer.shape.size(); ++i) {
    view.strides.push_back(0);
    if (outer.shape[i] <= 1 || outer.strides[i] == 0) continue;
    const auto step = outer.strides[i] > 0 ? axis_step(outer.strides[i], inner.shape, dense) : std::nullopt;
    if (!step) return std::nullopt;
    last[step->axis] += (outer.shape[i] - 1) * step->steps;
    view.strides.back() = step->steps * inner.strides[step->axis];
  }
  // No index runs over the end of its axis into the next.
  for (std::size_t d = 0; d < last.size(); ++d) {
    if (last[d] >= inner.shape[d]) return std::nullopt;
  }
  return view;
}

std::optional<StridedView> inverse(const StridedView& outer, const Shape& shape) {
  // The axes of the dense tensor that `outer` views are those of `outer` in descending order of strides.
  std::vector<std::size_t> order(outer.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&outer](std::size_t d) { return outer.shape[d] == 1; });
  std::ranges::sort(order, std::ranges::greater{}, [&outer](std::size_t d) { return outer.strides[d]; });
  StridedView viewed{.shape = {}, .strides = {}};
  const Shape strides = row_major_strides(outer.shape);
  for (const std::size_t d : order) {
    viewed.shape.push_back(outer.shape[d]);
    viewed.strides.push_back(strides[d]);
  }
  const Shape dense = row_major_strides(viewed.shape);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (outer.strides[order[i]] != dense[i]) return std::nullopt;
  }
  if (outer.offset != 0 || num_elements(outer.shape) != num_elements(shape)) return std::nullopt;
  return compose(dense_view(shape), viewed);
}

}  // namespace popsr
