// Kernels that move elements between a tensor and parts of others. Bits are kept.
#pragma once

#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/view/view.h"

namespace popsr {

/// Output 0 = its parts, part k of input k.
BlockKernel join_kernel(const EvalSpec& spec, const std::vector<ViewPart>& parts);

/// OpDef::eval and OpDef::write_back of ops that make views.
BlockKernel eval_view(const EvalSpec& spec);
BlockKernel write_back_view(const EvalSpec& spec);

}  // namespace popsr
