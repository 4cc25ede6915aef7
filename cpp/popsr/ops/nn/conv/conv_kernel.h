// Kernels of convolutions.
//
// Operands of any dtype are widened to float32 (float64 stays), results are rounded once. Every element of a
// result is one chain of fused multiply-adds from +0, in this order:
//   conv            ascending (input channel, element of the kernel)
//   conv_transpose  the same; elements of the kernel that never meet the output position are left out
//   gradient of the weight: for each sample chains over kWeightBlock output positions at a time, whose
//                   results are added in ascending order
// Chains over more than 4096 steps are cut as in kernels::MatmulArgs. Positions outside the input count
// as zeros.
#pragma once

#include <cstdint>
#include <functional>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/nn/conv/conv_shape.h"

namespace popsr {

class Block;

inline constexpr std::int64_t kWeightBlock = 512;

struct ConvOptions {
  /// Function that gives the factor of a block's results before they are rounded; called before anything is
  /// written, may throw. Null: 1.
  std::function<double(const Block&)> factor = {};
};

/// Kernel: out = conv(input 0, input 1).
BlockKernel conv_kernel(const EvalSpec& spec, const ConvShape& shape, ConvOptions options = {});
/// Kernel: out = conv_transpose(input 0, input 1); also the gradient of conv with respect to t, from the
/// cotangent.
BlockKernel conv_transpose_kernel(const EvalSpec& spec, const ConvShape& shape, ConvOptions options = {});
/// Kernel: out = the gradient of conv with respect to its weight, from t (input 0) and the cotangent (input
/// 1).
BlockKernel conv_weight_grad_kernel(const EvalSpec& spec, const ConvShape& shape);

}  // namespace popsr
