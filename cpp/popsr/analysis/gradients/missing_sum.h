// Gradients of which each replica has the part of its own data, and that are used as if they were whole.
//
// Claim: a value that is not proved equal in its declared groups depends on the result of an op that is
// marked as a derivative (Origin::derivative) and that differs there. Each replica has a part of that
// gradient; the sum over the groups is missing at or before its last use. The search follows the operands
// that differ from the value back, the nearest ones first, or the path of an explanation, which enters loops
// and branches.
// Cost: O(ops between the gradient and the value).
#pragma once

#include <optional>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/analysis/partition_analysis.h"

namespace popsr {

struct MissingSum {
  OpId made = kNone;          ///< Marked op through which the difference enters.
  TensorId gradient = kNone;  ///< Result of that op.
  OpId used = kNone;          ///< Op that takes the gradient on the way to the value; kNone: it is the value.
  /// First op on that way whose result is not linear in what differs, so that a later sum is wrong; kNone
  /// without one.
  OpId nonlinear = kNone;
};

/// Missing sum of a value of one graph; nullopt if the difference enters through a call, or not through a
/// gradient.
std::optional<MissingSum> missing_sum(const PartitionAnalysis& facts, TensorId value, PartitionId declared);
/// Missing sum on the path of an explanation.
std::optional<MissingSum> missing_sum(Dataflow& flow, const Explanation& explanation, PartitionId declared);

}  // namespace popsr
