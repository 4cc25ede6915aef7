// Run-time scale of float8 ops: a power of two, given by its exponent.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/loops/blocks.h"

namespace popsr {

/// Input "log2_scale" of an op.
InputDef log2_scale_input();
/// Throws ShapeError unless that input is a scalar.
void require_scalar_scale(const InferContext& context, std::size_t input);

/// Wraps a kernel with a check of the scales, input `input`, of all blocks: AttributeValueError before
/// anything is written if one is outside [-32, 32), unless EvalSpec::clamp_scales is set.
BlockKernel with_checked_scale(const EvalSpec& spec, std::size_t input, BlockKernel kernel);
/// Power 2^scale, with the scale clamped to [-32, 32).
double power_of_scale(double log2_scale);
/// Power 2^scale for the scale of a block.
double block_scale(const Block& block, std::size_t input);

}  // namespace popsr
