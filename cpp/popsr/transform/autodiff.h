// Reverse-mode differentiation of a graph into a new graph.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

struct ExpectedConnection {
  bool is_gradient = false;   ///< FwdGrad (a gradient of fwd_tensor) or Fwd (its value).
  TensorId fwd_tensor = kNone;
};

struct GradGraph {
  GraphId forward;
  GraphId graph;
  std::vector<ExpectedConnection> inputs;
  std::vector<ExpectedConnection> outputs;
};

struct AutodiffOptions {
  std::optional<std::vector<TensorId>> grads_provided = {};  ///< Default: all outputs.
  std::optional<std::vector<TensorId>> grads_required = {};  ///< Default: all inputs.
  std::map<std::uint32_t, GradGraph> called = {};            ///< By forward graph: used instead of differentiating it.
};

/// Builds the gradient graph of `forward` (and of the graphs it calls; all are returned, keyed by forward graph).
/// Needed intermediates become extra outputs of `forward`, and every call of it gains them.
/// Throws GraphError: a modifying op, a required gradient that does not exist, tensors of other graphs.
std::map<std::uint32_t, GradGraph> autodiff(Ir& ir, GraphId forward, const AutodiffOptions& options = {});

}  // namespace popsr
