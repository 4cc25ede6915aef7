// Pairs of ops that use one allocation, of which one writes it in place, and that nothing orders.
#pragma once

#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Effect of one op on an allocation.
struct Use {
  OpId op = kNone;
  TensorId tensor = kNone;
  std::uint32_t position = 0;
  bool writes = false;
};

struct UnorderedPair {
  TensorId root = kNone;
  Use writer, other;
};

/// By root, then in the order of the ops.
std::vector<UnorderedPair> unordered_pairs(const Ir& ir, const Graph& graph);

}  // namespace popsr
