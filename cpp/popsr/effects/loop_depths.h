// Loops inside loops.
#pragma once

#include <cstdint>
#include <map>

#include "popsr/ir/ir.h"

namespace popsr {

class LoopDepths {
 public:
  explicit LoopDepths(const Ir& ir) : ir_(ir) {}
  /// Loops that an op of the graph may be inside of, one in another, counted from the graph.
  std::uint32_t of(GraphId graph) const;

 private:
  std::uint32_t find(GraphId graph) const;

  const Ir& ir_;
  mutable std::map<GraphId, std::uint32_t> memo_;
};

}  // namespace popsr
