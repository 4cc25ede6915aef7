// Variables that drift: those whose declared groups a run does not keep equal. Lints L2 and L3, and the table
// of PartitionAnalysis.drifting().
#pragma once

#include <vector>

#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/lint/lints.h"

namespace popsr {

struct Drift {
  TensorId state = kNone;     ///< The variable, or the shard or remote entry that it lives in.
  TensorId variable = kNone;  ///< What the user made.
  PartitionId declared = {};  ///< Replicas that start with the same value.
  PartitionId at_end = {};    ///< Replicas that still hold the same value when a run ends.
  OpId op = kNone;            ///< The last op of a run that writes it; may be a call.
  LocationId location = {};   ///< Of that op.
  bool overwritten = false;   ///< By every run, before it reads what the run before left: harmless.
};

/// In the order of the variables. Costs nothing that grows with the ops unless some variable drifts.
std::vector<Drift> find_drifts(Dataflow& flow);

/// The cause of a difference between the replicas of one declared group.
Explanation explain_drift(Explainer& explainer, const Drift& drift);

/// L2 of it.
Lint drift_lint(Explainer& explainer, const Drift& drift);

}  // namespace popsr
