// The run-time scale of float8 ops: a power of two, given by its exponent.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/ops/loops/blocks.h"

namespace popsr {

/// The input "log2_scale" of an op.
InputDef log2_scale_input();
/// ShapeError unless that input is a scalar.
void require_scalar_scale(const InferContext& context, std::size_t input);

/// The kernel behind a check of the scales, input `input`, of all blocks: AttributeValueError before anything
/// is written when one is outside [-32, 32), unless `spec` says that it is clamped.
BlockKernel with_checked_scale(const EvalSpec& spec, std::size_t input, BlockKernel kernel);
/// 2^scale, the scale clamped to [-32, 32).
double power_of_scale(double log2_scale);
/// The same of the scale of a block.
double block_scale(const Block& block, std::size_t input);

}  // namespace popsr
