// Tensors that take part in a differentiation, found before anything is emitted.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// True if the op is differentiated through the graphs that it calls; false for a loop.
bool is_call(const Op& op);

/// Activity of one graph: inputs that can get a gradient, outputs that can pass one on.
struct CallFlow {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
};
using CallFlows = std::map<GraphId, CallFlow>;  ///< Activity by called graph.

/// Flags of one graph's tensors, by Tensor::index. Only floating tensors take part.
struct Activity {
  std::vector<bool> depends;  ///< True if made from a required tensor by ops that pass gradients.
  std::vector<bool> reaches;  ///< True if it feeds a provided tensor through ops that pass gradients.
  bool whole = false;         ///< True if gradients are whole: sums over replicas then pass them on too.

  bool depends_on_required(const Ir& ir, TensorId t) const { return flag(depends, ir, t); }
  bool reaches_provided(const Ir& ir, TensorId t) const { return flag(reaches, ir, t); }

 private:
  /// Flag of a tensor; false for tensors that were added later (outputs of calls that gained some).
  static bool flag(const std::vector<bool>& flags, const Ir& ir, TensorId t) {
    return t != kNone && ir.tensor(t).index < flags.size() && flags[ir.tensor(t).index];
  }
};

/// Computes the activity of a graph. `flows` holds every graph that `graph` calls; `whole` is
/// Activity::whole.
Activity find_activity(const Ir& ir, GraphId graph, const std::vector<TensorId>& provided,
                       const std::vector<TensorId>& required, const CallFlows& flows, bool whole);

/// First op that uses a value made from `t` and passes no gradient on.
std::optional<OpId> where_gradients_stop(const Ir& ir, TensorId t, bool whole);

/// True if a gradient must go through this op, from an output that reaches a provided tensor to a wanted
/// input.
bool is_active(const Ir& ir, const Op& op, const Activity& activity);

}  // namespace popsr
