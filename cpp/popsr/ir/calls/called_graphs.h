// Graphs that an op runs: one for a call or a loop, two for a conditional.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;
struct Op;

/// A graph that an op runs; the op's inputs first..end-1 are the graph's inputs.
struct CalledGraph {
  GraphId graph;
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

/// Graphs that the op runs, in the order of its attributes: a conditional's then branch, which runs if the
/// condition holds, comes first. Empty for an op that runs none.
std::vector<CalledGraph> called_graphs(const Ir& ir, const Op& op);

/// False for a loop of no iterations, whose outputs are its inputs.
bool runs_body(const Op& op);

/// Throws GraphError if a graph of that depth cannot be run by another op. Called graphs are walked by
/// recursive functions: the limit is far above what models use and below what a stack holds.
void check_depth(std::string_view op, std::string_view graph, std::uint32_t depth);

}  // namespace popsr
