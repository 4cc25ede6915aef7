// Graphs: a schedule of ops on tensors, with inputs and outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "popsr/ir/ids.h"
#include "popsr/ir/origin/sequence.h"

namespace popsr {

/// The indices that the next op of a graph gets.
struct NextIndices {
  std::uint32_t noise = 0;  ///< OpNoise::index.
  std::uint32_t call = 0;   ///< OpCall::index.
};

/// Ops that run a graph, and its own ops that run graphs.
struct GraphCalls {
  OpId first = kNone;       ///< The first op that runs it.
  std::uint32_t depth = 0;  ///< Calls inside calls, of the graphs as they were called.
};

struct Graph {
  GraphId id;
  std::string name = {};  ///< "" for the main graph.
  std::vector<TensorId> inputs = {};
  std::vector<TensorId> outputs = {};
  std::vector<TensorId> tensors = {};  ///< All tensors of the graph in creation order.
  std::vector<OpId> ops = {};          ///< The schedule: creation order, until ops are merged.
  SequenceState sequence = {};
  NextIndices next = {};
  GraphCalls calls = {};
  bool has_views = false;  ///< Of ops that are there.

  /// True if an op of some graph runs it: its inputs are fixed.
  bool called() const { return calls.first != kNone; }
};

/// "main graph", "graph 'name'": for messages.
std::string in_words(const Graph& graph);

}  // namespace popsr
