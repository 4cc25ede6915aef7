// Facts that a graph starts with, and their meets.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "popsr/analysis/memory/pieces.h"
#include "popsr/ir/ir.h"

namespace popsr {

/// Facts at the start of a graph: its context, except the execution partition.
struct ContextEntry {
  /// Fact of each graph input; for the main graph, of each state tensor.
  std::vector<PartitionId> inputs = {};
  /// Facts of remote entries, then of stream positions, in the order of RemoteAccess::of(graph) and
  /// StreamPositions::of(graph).
  std::vector<PartitionId> remote = {};
  PiecesByInput pieces = {};  ///< Facts by part, for inputs whose parts have facts of their own.
  /// Inputs that are conditions with a known value: true or false on all replicas that run the graph.
  std::map<std::uint32_t, bool> truths = {};
  auto operator<=>(const ContextEntry&) const = default;
};

/// Number of passes of a fixpoint after which each tensor gets a single fact for all its parts, so that the
/// fixpoint ends.
inline constexpr int kMaxPassesByPart = 32;

/// Facts of tensors, some of which have pieces. Each fact is the meet of the tensor's pieces.
struct TensorFacts {
  const std::vector<PartitionId>& facts;
  const PiecesByInput& pieces;
};

/// Replaces the facts of an entry's inputs, which are `tensors`, by their meet with others; true if a fact
/// changed.
bool meet_with(const Ir& ir, const std::vector<TensorId>& tensors, ContextEntry& entry,
               const TensorFacts& others);
/// Overload for facts without parts.
bool meet_with(PartitionTable& table, std::vector<PartitionId>& facts,
               const std::vector<PartitionId>& others);

}  // namespace popsr
