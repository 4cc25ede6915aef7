// Explanations of two replicas that are not proved equal: a shortest path from a value back to the cause.
//
// Partition rules are pullbacks (docs/replica_partitions.md), so the pair of replicas moves exactly: out(r)
// and out(s) are made of inputs at σ(r) and σ(s), and one such pair must differ unless the op itself
// distinguishes r and s, which ends the path. Every edge is real dataflow, and every path is a proof that
// nothing better can be claimed. Cycles (loops, variables across runs) need no special treatment: a fact gets
// finer only because of a path that ends, or of seeds that differ on the way.
//
// The search is A* with Dataflow::nearness as lower bound. Cost: O(values nearer than the cause), in acyclic
// graphs about the length of the path. Mostly the bound is exact, and the path is walked without a search. A
// collective leads to many pairs of replicas: a pair is skipped if no fact of the program distinguishes it
// from one that was followed already, since its path would have the same ops.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/analysis/gradients/gradient_flow.h"

namespace popsr {

class Explainer {
 public:
  explicit Explainer(const PartitionAnalysis& facts) : flow_(facts) {}

  Dataflow& flow() { return flow_; }
  /// Shares of the program's gradients, computed at the first call.
  GradientFlow& gradients();

  /// Explains why r and s may differ in a value. Throws ReplicaError unless r and s are two replicas,
  /// GraphError if the program changed.
  Explanation explain(TensorId tensor, const Value& value, Replica r, Replica s);

  /// Nodes of a shortest path; empty if r and s are proved equal, or if all paths go through `without`.
  /// nullopt after `limit` nodes.
  std::optional<std::vector<Difference>> path(const Value& value, Replica r, Replica s,
                                              const Difference* without = nullptr,
                                              std::size_t limit = SIZE_MAX);

  /// Two replicas of one block that the fact splits, if it splits one.
  std::optional<std::pair<Replica, Replica>> split(PartitionId block, PartitionId fact) const;

  /// Cause that ends a path at this value, if any.
  std::optional<RootKind> root(const Difference& node);
  /// True if the seeds of the op's rounding make the replicas differ, whatever its inputs are. They end a
  /// path only where nothing else does.
  bool has_own_seeds(const Difference& node) const;

  /// Value of the condition of a conditional around the frame, or in its graph.
  Value condition(FrameId frame, const Op& conditional);

 private:
  Explanation find_explanation(TensorId tensor, const Value& value, Replica r, Replica s);
  std::vector<Difference> straight_path(const Difference& start);
  std::vector<Difference> causes(const Difference& node);
  void add_operand_causes(const Difference& node, std::vector<Difference>& result);
  bool separates(PartitionId fact, Replica r, Replica s) const;
  std::vector<bool> facts_between(Replica r, Replica s) const;
  bool explains(const Value& value, const Op& op, std::size_t output, std::size_t input, Replica r,
                Replica s);
  std::vector<PartitionId> input_facts(const Value& value, const Op& op);
  const Op* diverging_op(const Difference& node, RootKind root);
  const Op* diverging_load(FrameId frame, StreamId stream, Replica r, Replica s, std::set<ContextId>& seen);

  Dataflow flow_;
  std::optional<GradientFlow> gradients_;
};

/// Suggestion that makes the replicas of an explanation equal.
std::string suggestion(Explainer& explainer, const Explanation& explanation);

}  // namespace popsr
