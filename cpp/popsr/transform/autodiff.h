// Reverse-mode differentiation of a graph into a new graph.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

struct ExpectedConnection {
  bool is_gradient = false;  ///< True for a FwdGrad, a gradient of fwd_tensor; false for a Fwd, its value.
  TensorId fwd_tensor = kNone;
};

struct GradGraph {
  GraphId forward;
  GraphId graph;
  std::vector<ExpectedConnection> inputs;
  std::vector<ExpectedConnection> outputs;
};

struct AutodiffOptions {
  /// Tensors whose gradients are provided; default: all outputs.
  std::optional<std::vector<TensorId>> grads_provided = {};
  /// Tensors whose gradients are required; default: all inputs.
  std::optional<std::vector<TensorId>> grads_required = {};
  /// Gradient graphs by forward graph, used instead of differentiating it.
  std::map<GraphId, GradGraph> called = {};
  /// True to sum gradients over replicas where a value forks into replicas that use it differently
  /// (whole_gradients.h).
  bool sums_replicas = false;
};

/// Builds the gradient graph "<forward>_bwd" and the gradient graphs of the graphs that `forward` calls;
/// all are returned, keyed by forward graph, with `options.called` among them.
///
/// Inputs: one gradient for each of grads_provided, in order, then the forward tensors that are needed.
/// Outputs: the gradients of grads_required, in order. A called graph is differentiated once, for everything
/// that any of its calls needs. The gradient of a conditional is a conditional on the same condition, whose
/// branches call the gradient graphs of its branches and return zeros for gradients that only the other one
/// has. Constants are copied. Needed intermediates become extra outputs of the forward graph, and every call
/// of it gains them; if it is also repeated or a branch somewhere, they are recomputed in the gradient graph
/// instead. Sums: the provided gradient of a tensor first, then its consumers from the last to the first.
///
/// With `sums_replicas` the objective is the sum over replicas of the values that gradients are provided for,
/// where equal ones count once: gradients are whole, and equal on replicas that share the forward value. The
/// graph has to be called: calls determine which replicas share its inputs.
///
/// Throws GraphError: a modifying op, an op whose gradient throws, a required gradient that does not exist,
/// tensors of other graphs.
std::map<GraphId, GradGraph> autodiff(Ir& ir, GraphId forward, const AutodiffOptions& options = {});

}  // namespace popsr
