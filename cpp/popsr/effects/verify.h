// Checks of a whole program before it is analysed and run.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/effects/write_order.h"

namespace popsr {

/// Throws GraphError when an op of a graph that the main graph reaches modifies a tensor through two of its
/// inputs ("Inplacing ambiguity detected.").
void verify(const Ir& ir);

/// Throws GraphError when a tensor is modified in place and used by another op whose order relative to the
/// modifier is fixed neither by data nor by in_sequence ("Inplacing ambiguity detected."), in any graph the
/// main graph reaches. Programs without this check run such ops in program order. Returns the write order
/// of each graph that was checked.
std::map<GraphId, WriteOrder> verify_order(const Ir& ir);

/// Ops that use one allocation, at least one of which modifies it, and whose relative order only the
/// program's text gives.
struct UnorderedWrites {
  OpId writer = kNone;
  OpId other = kNone;  ///< Other op of the first pair.
  TensorId tensor = kNone;
  bool other_writes = false;
  std::int64_t pairs = 0;  ///< Number of pairs of ops on this allocation.
};

/// Summarises the pairs of a graph, with one entry per allocation.
std::vector<UnorderedWrites> unordered_writes(const std::vector<UnorderedPair>& pairs);

}  // namespace popsr
