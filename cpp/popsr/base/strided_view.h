// Views of dense tensors by strides.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/base/shape.h"

namespace popsr {

/// A view: element (i0, i1, ...) is at offset + i0 * strides[0] + ..., in elements; strides may be 0 or
/// negative.
struct StridedView {
  Shape shape;
  Shape strides;
  std::int64_t offset = 0;
};

/// The dense tensor as a view of itself.
StridedView dense_view(const Shape& shape);

/// `outer`, a view of a dense tensor that holds the elements of `inner`, as a view of what `inner` views. The
/// dense tensor may have another shape than `inner`. nullopt if no strides say it.
std::optional<StridedView> compose(const StridedView& outer, const StridedView& inner);

/// `outer` is a view of a dense tensor that has each of its elements once: the dense tensor, in the shape
/// `shape`, as a view of `outer` in C order. nullopt if no strides say it.
std::optional<StridedView> inverse(const StridedView& outer, const Shape& shape);

}  // namespace popsr
