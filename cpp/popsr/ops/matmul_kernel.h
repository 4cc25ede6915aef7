// Kernels of matmul: one block or stacked blocks, wide or narrow types, and folded products.
#pragma once

#include "popsr/ir/eval.h"

namespace popsr {

BlockKernel matmul_kernel(const EvalSpec& spec);
/// Null unless both operands are float32 or float64 matrices with an output of the same dtype.
ProductKernel matmul_product(const EvalSpec& spec);
/// Null unless each block is one matrix whose columns are the last axis of the output.
RowsKernel matmul_rows(const EvalSpec& spec);

}  // namespace popsr
