// Kernels of collectives: reductions over the members of a group and copies between their blocks.
#pragma once

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/exec/reduction_chain.h"
#include "popsr/ir/op_def.h"

namespace popsr {

/// Index of a member in its group.
inline constexpr Attr<std::int64_t> kRoot{"root"};

/// Receivers of a reduction. kAll: all members; kChunk: member k gets its k-th chunk; kRoot: the member
/// kRoot, while the others get zeros; kPrefix: member k gets the reduction over members 0 to k; kSuffix:
/// over the last member down to k.
enum class Receive : std::uint8_t { kAll, kChunk, kRoot, kPrefix, kSuffix };

/// Kernel: output element i of a replica = reduction of the elements offset + i of all members, where
/// offset is 0, or, for kChunk, chunk times the replica's index in its group; 0 past the end of the input.
///
/// Members are reduced in ascending replica order, for kSuffix in descending order, in the compute type:
/// acc = first, acc = acc op next. The residual of the last addition goes to the rounding.
/// mean = sum / group size. Integers wrap; their mean is the exact quotient, towards zero. and / or: logical
/// for bool, bitwise for integers.
CollectiveKernel reduce_kernel(const CollectiveSpec& spec, Receive receive);
inline CollectiveKernel all_reduce(const CollectiveSpec& spec) { return reduce_kernel(spec, Receive::kAll); }

/// Kernel: every output = reduction of all inputs, tensors of one type, in their order: one value, rounded
/// with the noise of output 0.
BlockKernel reduce_tensors_kernel(const EvalSpec& spec);
/// Chain kernel of an all-reduce whose members are on several ranks; nullopt for means of integers.
std::optional<ReductionChain> all_reduce_chain(const EvalSpec& spec);
/// Fusion of an all-reduce with the product that it reduces.
std::optional<ProductFusion> all_reduce_fusion(const EvalSpec& spec);

/// Layout of a gathered value: `outer` pieces of each member, `inner` elements each, members side by side.
struct GatherLayout {
  std::int64_t outer = 1, inner = 1;
};
/// Kernel: output = the members' values in that layout, in ascending replica order; cut to the output's size.
CollectiveKernel gather_kernel(const CollectiveSpec& spec, GatherLayout layout);
/// Kernel: output of member k = the k-th pieces of all members in that layout, side by side in ascending
/// order.
CollectiveKernel all_to_all_kernel(const CollectiveSpec& spec, GatherLayout layout);
/// Kernel: output = the replica's own pieces of a gathered value that it holds; zeros past its end.
CollectiveKernel own_part_kernel(const CollectiveSpec& spec, GatherLayout layout);

}  // namespace popsr
