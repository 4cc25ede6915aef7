// Views of dense tensors by strides.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/base/layout/shape.h"

namespace popsr {

/// View of a dense tensor: element (i0, i1, ...) is at offset + i0 * strides[0] + ..., in elements; strides
/// may be 0 or negative.
struct StridedView {
  Shape shape;
  Shape strides;
  std::int64_t offset = 0;
};

/// View of a dense tensor that is the whole tensor.
StridedView dense_view(const Shape& shape);

/// Composition: `outer` views a dense tensor that holds the elements of `inner`, possibly in another shape;
/// the result views what `inner` views. nullopt if it has no strided form.
std::optional<StridedView> compose(const StridedView& outer, const StridedView& inner);

/// Inverse: `outer` is a view with each element of a dense tensor exactly once; the result is the dense
/// tensor, in the shape `shape`, as a view of `outer` in C order. nullopt if it has no strided form.
std::optional<StridedView> inverse(const StridedView& outer, const Shape& shape);

}  // namespace popsr
