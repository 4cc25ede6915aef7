// Kernel of matmul_integer: (input 0 - input 2) @ (input 1 - input 3) of bytes, modulo 2^32.
#pragma once

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Indices of optional inputs: one zero point of lhs, and for rhs one or one per column.
inline constexpr std::size_t kLhsZero = 2, kRhsZero = 3;

BlockKernel matmul_integer_kernel(const EvalSpec& spec);
/// True if operands and result have strides that the kernel supports.
bool matmul_integer_supports_views(const EvalSpec& spec);

}  // namespace popsr
