// Kernels that move elements between a tensor and a strided view of another. Bits are kept.
#pragma once

#include "popsr/base/layout/strided_view.h"
#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Kernel: output 0, in C order, = the view of input 0.
BlockKernel gather_kernel(const EvalSpec& spec, const StridedView& view);
/// Kernel: output 0 = zeros, then the view of output 0 = input 0 in C order. The view's elements are
/// distinct.
BlockKernel embed_kernel(const EvalSpec& spec, const StridedView& view);

}  // namespace popsr
