// Kernels that move elements between a tensor and parts of others. Bits are kept.
#pragma once

#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/view/view.h"

namespace popsr {

/// Kernel: output 0 = its parts, part k from input k.
BlockKernel join_kernel(const EvalSpec& spec, const std::vector<ViewPart>& parts);

/// Kernels of ops that make views: MemoryAspect::view names what they copy.
BlockKernel eval_view(const EvalSpec& spec);
BlockKernel write_back_view(const EvalSpec& spec);

}  // namespace popsr
