// Uses of a graph's inputs for which more than one fact of their memory matters: parts of them, and
// conditions.
#pragma once

#include <map>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Use of one input, by the graph's ops and by the graphs that they run.
struct InputUse {
  bool in_parts = false;  ///< True if views show parts of the input, or it is handed on as a result.
  bool decides = false;   ///< True if the input is the condition of a conditional.
};

class InputUses {
 public:
  explicit InputUses(const Ir& ir) : ir_(ir) {}

  /// Use of each input of the graph. The reference lives as long as this object.
  const std::vector<InputUse>& of(GraphId graph) const;

 private:
  std::vector<InputUse> find(GraphId graph) const;

  const Ir& ir_;
  mutable std::map<GraphId, std::vector<InputUse>> memo_;
};

}  // namespace popsr
