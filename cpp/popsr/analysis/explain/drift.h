// Variables that drift: a run does not keep their declared groups equal. Lints L2 and L3, and the table of
// PartitionAnalysis.drifting().
#pragma once

#include <vector>

#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/lint/lints.h"

namespace popsr {

struct Drift {
  TensorId state = kNone;     ///< State tensor: the variable, or the shard or remote entry that it lives in.
  TensorId variable = kNone;  ///< Variable that the user made.
  PartitionId declared = {};  ///< Partition of replicas that start with the same value.
  PartitionId at_end = {};    ///< Partition of replicas that still hold the same value when a run ends.
  OpId op = kNone;            ///< Last op of a run that writes the state; may be a call.
  LocationId location = {};   ///< Location of that op.
  /// True if every run overwrites it before reading what the previous run left: harmless.
  bool overwritten = false;
};

/// Finds drifting variables, in the order of the variables. The cost does not grow with the ops unless some
/// variable drifts.
std::vector<Drift> find_drifts(Dataflow& flow);

/// Explains a difference between the replicas of one declared group.
Explanation explain_drift(Explainer& explainer, const Drift& drift);

/// Lint L2 for the drift.
Lint drift_lint(Explainer& explainer, const Drift& drift);

}  // namespace popsr
