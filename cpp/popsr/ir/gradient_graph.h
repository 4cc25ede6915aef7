// A gradient graph as autodiff made it: which of its tensors are gradients, and of what.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

struct GradientGraph {
  GraphId forward;
  /// Tensors of the forward graph: the first inputs of the gradient graph are their gradients, in this order.
  std::vector<TensorId> provided = {};
  std::uint32_t num_inputs = 0;  ///< When it was made; programs may add inputs of their own.
  /// Of the gradients that are the first outputs, in this order.
  std::vector<TensorId> required = {};
  /// Gradients, contributions to one, and sums of some of them, to the forward tensor.
  std::unordered_map<TensorId, TensorId> of = {};
};

}  // namespace popsr
