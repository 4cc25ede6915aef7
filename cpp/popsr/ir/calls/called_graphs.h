// The graphs that an op runs: one for a call or a loop, two for a conditional.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;
struct Op;

/// The op's inputs first..end-1 are the graph's inputs.
struct CalledGraph {
  GraphId graph;
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

/// Of an op, in the order of its attributes: a conditional's then branch, which runs where the condition
/// holds, comes first. Empty for an op that runs none.
std::vector<CalledGraph> called_graphs(const Ir& ir, const Op& op);

/// False for a loop of no iterations: its outputs are its inputs.
bool runs_body(const Op& op);

/// Called graphs are walked by recursive functions: a limit far above what models use and below what a stack
/// holds. GraphError when a graph of that depth cannot be run by another op.
void check_depth(std::string_view op, std::string_view graph, std::uint32_t depth);

}  // namespace popsr
