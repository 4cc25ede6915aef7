// Rewrites of a lowered program that change memory and time but no bit.
#pragma once

#include "popsr/kernels/kernel_table.h"
#include "popsr/runtime/lowering.h"

namespace popsr {

/// Lets the output of a reshape-like op use its input's buffer when neither is ever written again.
void share_buffers(LoweredProgram& program);

/// Moves a product into the only op that reads it, when that op folds products and no product is computed
/// more often for it: the product is never stored. Without dedup each block of facts counts as one block a
/// replica.
void fold_products(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program, bool dedup);

/// The static facts of an instruction, as its kernels are told.
EvalSpec eval_spec(const Ir& ir, const Op& op, const kernels::KernelTable& kernels);

}  // namespace popsr
