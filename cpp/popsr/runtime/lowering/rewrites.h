// Rewrites of a lowered program that change memory and time but no bit.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/replica/rank_map.h"
#include "popsr/runtime/lowering/lowered_program.h"

namespace popsr {

/// Lets the output of a reshape-like op share its input's buffer if neither is written again.
void share_buffers(LoweredProgram& program);

/// Lets a sum of a product and a value that no other op reads overwrite that value.
void accumulate_sums(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program);

/// Fuses a product into the only op that reads it, if that op accepts products and no product is computed
/// more often for it: the product is never stored. Without dedup each block of facts counts as one block
/// per replica. A reduction of groups with members on several ranks reads stored products.
void fuse_products(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program, bool dedup,
                   const RankMap& ranks);

/// Lets ops that support views read operands that transposes, slices and expansions would copy, and write
/// the operand of a transpose of their result directly. Copies without readers are removed.
void read_through_views(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program);

/// Unrolls short loops in which fused products are accumulated, so that fuse_accumulations() can combine
/// them.
void unroll_accumulations(const Ir& ir, LoweredProgram& program);

/// Lets ops of an iteration write carried values where the next iteration reads them.
void write_carried(const Ir& ir, LoweredProgram& program);

/// Combines fused products that are accumulated into one target, one after another, with the last of them,
/// or with a reduction of the target in place or before it is overwritten: the target is read and written
/// once, and is stored once per block of the reduction. Storage must have been chosen; returns true if
/// there were such products, and storage must then be chosen anew. A reduction of groups with members on
/// several ranks reads the stored target.
bool fuse_accumulations(const Ir& ir, const kernels::KernelTable& kernels, LoweredProgram& program,
                        bool dedup, const RankMap& ranks);

/// Runs element-wise ops on large operands slice by slice. Storage must have been chosen.
void fuse_slices(const Ir& ir, LoweredProgram& program);

/// Static facts of an op of a lowered program that its kernels are built from.
EvalSpec eval_spec(const Ir& ir, const LoweredProgram& program, const Op& op,
                   const kernels::KernelTable& kernels);

/// Groups whose members' products a consumer reduces.
ReplicaGrouping group_of(const Ir& ir, const ProductFusion& fusion);

}  // namespace popsr
