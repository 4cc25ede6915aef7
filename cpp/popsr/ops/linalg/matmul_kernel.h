// Kernels of matmul: one block or stacked blocks, wide or narrow types, and fused products.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ir/attribute.h"

namespace popsr {

/// Attributes that swap the last two axes of an operand on reading, so that gradients need no transposed
/// copies.
inline constexpr Attr<bool> kTransposeLhs{"transpose_lhs"};
inline constexpr Attr<bool> kTransposeRhs{"transpose_rhs"};

BlockKernel matmul_kernel(const EvalSpec& spec);
/// True if the kernel supports reading and writing the views: matrices with contiguous rows or columns.
bool matmul_supports_views(const EvalSpec& spec);
inline constexpr std::size_t kMatmulScale = 2;  ///< Index of the input with the scale of float8 operands.
/// Kernel for float8 operands: the product in float32, times 2^scale, rounded once.
BlockKernel matmul_pow2scaled_kernel(const EvalSpec& spec);
/// Product kernel; null unless both operands are float32 or float64 matrices with an output of the same
/// dtype.
ProductKernel matmul_product(const EvalSpec& spec);
/// Kernel for rows; null unless each block is one matrix whose columns are the last axis of the output.
RowsKernel matmul_rows(const EvalSpec& spec);

}  // namespace popsr
