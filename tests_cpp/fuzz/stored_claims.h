// Facts of values at the moment when they are stored for the host.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "popsr/analysis/explain/dataflow.h"
#include "popsr/analysis/partition_analysis.h"

namespace popsr::test {

/// Facts of the elements that one run stores, in order, by stream. nullopt for a stream to which branches
/// store: there replicas may be at different elements.
class StoredClaims {
 public:
  explicit StoredClaims(const PartitionAnalysis& facts);

  const std::optional<std::vector<PartitionId>>& of(StreamId stream) const { return claims_[stream]; }

 private:
  void walk(ContextId context);
  void store(const Context& context, const Op& op);
  /// No claim about what the graph stores.
  void drop(GraphId graph);

  const PartitionAnalysis& facts_;
  Dataflow flow_;
  IdVector<StreamId, std::optional<std::vector<PartitionId>>> claims_;
  std::set<GraphId> dropped_;
};

}  // namespace popsr::test
