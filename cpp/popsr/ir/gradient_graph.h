// Record of a gradient graph that autodiff made: which of its tensors are gradients, and of what.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

struct GradientGraph {
  GraphId forward;
  /// Forward tensors whose gradients are the first inputs of the gradient graph, in this order.
  std::vector<TensorId> provided = {};
  /// Number of inputs when the graph was made; programs may add inputs of their own.
  std::uint32_t num_inputs = 0;
  /// Forward tensors whose gradients are the first outputs, in this order.
  std::vector<TensorId> required = {};
  /// Forward tensor of each gradient, of each contribution to one, and of each partial sum of contributions.
  std::unordered_map<TensorId, TensorId> of = {};
};

}  // namespace popsr
