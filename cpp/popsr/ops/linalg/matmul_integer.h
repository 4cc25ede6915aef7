// The kernel of matmul_integer: (input 0 - input 2) @ (input 1 - input 3) of bytes, modulo 2^32.
#pragma once

#include "popsr/exec/block_kernel.h"

namespace popsr {

/// Inputs that may be absent: one zero point of lhs, and one of rhs or one of each of its columns.
inline constexpr std::size_t kLhsZero = 2, kRhsZero = 3;

BlockKernel matmul_integer_kernel(const EvalSpec& spec);
/// True if operands and result lie as the kernel needs them.
bool matmul_integer_supports_views(const EvalSpec& spec);

}  // namespace popsr
