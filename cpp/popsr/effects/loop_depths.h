// Nesting depth of loops, per graph.
#pragma once

#include <cstdint>
#include <map>

#include "popsr/ir/ir.h"

namespace popsr {

class LoopDepths {
 public:
  explicit LoopDepths(const Ir& ir) : ir_(ir) {}
  /// Largest number of nested loops, counted from the graph, that an op of the graph may be inside of.
  std::uint32_t of(GraphId graph) const;

 private:
  std::uint32_t find(GraphId graph) const;

  const Ir& ir_;
  mutable std::map<GraphId, std::uint32_t> memo_;
};

}  // namespace popsr
