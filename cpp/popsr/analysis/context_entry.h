// Facts that a graph starts with, and their meets.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "popsr/analysis/pieces.h"
#include "popsr/ir/ir.h"

namespace popsr {

/// The context of a graph, but for who runs it.
struct ContextEntry {
  std::vector<PartitionId> inputs = {};  ///< Of Graph::inputs; of the state for the main graph.
  std::vector<PartitionId> remote = {};  ///< Of RemoteAccess::of(graph), then of StreamPositions::of(graph).
  PiecesByInput pieces = {};             ///< Of inputs whose parts have facts of their own.
  /// Inputs that are conditions and known: true or false on all replicas that run the graph.
  std::map<std::uint32_t, bool> truths = {};
  auto operator<=>(const ContextEntry&) const = default;
};

/// After so many passes of a fixpoint all of a tensor gets one fact, so that there is an end.
inline constexpr int kMaxPassesByPart = 32;

/// Facts of tensors, some of which have pieces. Each fact is the meet of the tensor's pieces.
struct TensorFacts {
  const std::vector<PartitionId>& facts;
  const PiecesByInput& pieces;
};

/// Meets the facts of an entry's inputs, which are those `tensors`, with others; true when one fell.
bool meet_with(const Ir& ir, const std::vector<TensorId>& tensors, ContextEntry& entry,
               const TensorFacts& others);
/// The same of facts without parts.
bool meet_with(PartitionTable& table, std::vector<PartitionId>& facts,
               const std::vector<PartitionId>& others);

}  // namespace popsr
