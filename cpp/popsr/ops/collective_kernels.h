// Kernels of collectives: folds over the members of a group and copies between their blocks.
#pragma once

#include "popsr/ir/eval.h"

namespace popsr {

enum class CollectiveOp : std::uint8_t { kAdd, kMean, kMul, kMin, kMax, kAnd, kOr, kSquareAdd };

/// AttributeValueError with the accepted names, prefixed with `op`.
CollectiveOp collective_op_from_name(std::string_view op, std::string_view name);

/// Output element i of a replica = fold of the elements offset + i of all members, where offset is 0, or,
/// when `scatter`, chunk times the replica's index in its group; 0 past the end of the input.
///
/// Members fold in ascending replica order in the compute type: acc = first, acc = acc op next. The remainder
/// of the last addition goes to the rounding. mean = sum / group size. Integers wrap; their mean truncates
/// towards zero. and / or: logical for bool, bitwise for integers.
ExchangeKernel fold_kernel(const ExchangeSpec& spec, bool scatter);

/// How a gathered value is made of the members' values: `outer` pieces of each member, `inner` elements each,
/// members side by side.
struct GatherLayout {
  std::int64_t outer = 1, inner = 1;
};
/// Output = the members' values in that layout, in ascending replica order; cut to the output's size.
ExchangeKernel gather_kernel(const ExchangeSpec& spec, GatherLayout layout);
/// The replica's own pieces of a gathered value of its own; zeros past its end.
ExchangeKernel own_part_kernel(const ExchangeSpec& spec, GatherLayout layout);

}  // namespace popsr
