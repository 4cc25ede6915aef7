// Rewrites of a lowered program that change memory and time but no bit.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/replica/rank_map.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Lets the output of a reshape-like op use its input's buffer when neither is ever written again.
void share_buffers(LoweredProgram& program);

/// Lets a sum of a product and of a value that nobody else reads overwrite that value.
void accumulate_sums(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program);

/// Fuses a product into the only op that reads it, when that op takes products and no product is computed
/// more often for it: the product is never stored. Without dedup each block of facts counts as one block a
/// replica. A reduction of groups with members on several ranks takes stored products.
void fuse_products(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program, bool dedup,
                   const RankMap& ranks);

/// Lets ops that take views read what transposes, slices and expansions would copy, and write what a
/// transpose of their result would. A copy that nobody reads any more goes.
void read_through_views(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program);

/// Writes out short loops in which fused products are accumulated, so that they can wait for each other.
void unroll_accumulations(LoweredProgram& program);

/// Lets ops of an iteration write the values that it carries where the next one reads them.
void write_carried(LoweredProgram& program);

/// Lets fused products that are accumulated into one target, one after another, wait for the last of them,
/// or for a reduction of the target in place or before it is overwritten: the target is read and written
/// once, and is stored once per block of the reduction. Storage must have been chosen; it is to be chosen
/// anew if the result is true: there are such products. A reduction of groups with members on several ranks
/// takes the stored target.
bool fuse_accumulations(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program,
                        bool dedup, const RankMap& ranks);

/// Runs element-wise ops on large operands slice by slice. Storage must have been chosen.
void fuse_slices(const Ir& ir, LoweredProgram& program);

/// The static facts of an op that its kernels are built from.
EvalSpec eval_spec(const Ir& ir, const Op& op, const kernels::KernelTable& kernels);

/// The groups whose members' products a consumer reduces.
ReplicaGrouping group_of(const Ir& ir, const ProductFusion& fusion);

}  // namespace popsr
