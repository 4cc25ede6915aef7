// Graphs: a schedule of ops on tensors, with inputs and outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "popsr/ir/ids.h"
#include "popsr/ir/origin/sequence.h"

namespace popsr {

/// Indices that the next op of a graph gets.
struct NextIndices {
  std::uint32_t noise = 0;  ///< Next OpNoise::index.
  std::uint32_t call = 0;   ///< Next OpCall::index.
};

/// Calls of a graph.
struct GraphCalls {
  OpId first = kNone;  ///< First op that runs the graph.
  /// Depth of nested calls inside the graph, with the graphs as they were when called.
  std::uint32_t depth = 0;
};

struct Graph {
  GraphId id;
  std::string name = {};  ///< Name; "" for the main graph.
  std::vector<TensorId> inputs = {};
  std::vector<TensorId> outputs = {};
  std::vector<TensorId> tensors = {};  ///< All tensors of the graph in creation order.
  std::vector<OpId> ops = {};          ///< Schedule: creation order, until ops are merged.
  SequenceState sequence = {};
  NextIndices next = {};
  GraphCalls calls = {};
  bool has_views = false;  ///< True if an op of the graph makes a view.

  /// True if an op of some graph runs it: its inputs are then fixed.
  bool called() const { return calls.first != kNone; }
};

/// Text for messages: "main graph", "graph 'name'".
std::string in_words(const Graph& graph);

}  // namespace popsr
