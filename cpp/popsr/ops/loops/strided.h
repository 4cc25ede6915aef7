// Kernels that move elements between a tensor and a strided view of another. Bits are kept.
#pragma once

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// A view: element (i0, i1, ...) is at offset + i0 * strides[0] + ..., in elements; strides may be 0 or
/// negative.
struct StridedView {
  Shape shape;
  Shape strides;
  std::int64_t offset = 0;
};

/// Output 0, in C order, = the view of input 0.
BlockKernel gather_kernel(const EvalSpec& spec, const StridedView& view);
/// Output 0 = zeros, then the view of output 0 = input 0 in C order. The view's elements are distinct.
BlockKernel embed_kernel(const EvalSpec& spec, const StridedView& view);

}  // namespace popsr
