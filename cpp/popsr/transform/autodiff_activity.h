// The tensors that take part in a differentiation: known before anything is emitted.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// True if the op is differentiated through the graphs that it calls; a loop is not.
bool is_call(const Op& op);

/// Activity of one graph: inputs that can get a gradient, outputs that can pass one on.
struct CallFlow {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
};
using CallFlows = std::map<GraphId, CallFlow>;  ///< By called graph.

/// Flags of one graph's tensors, by Tensor::index. Only floating tensors take part.
struct Activity {
  std::vector<bool> depends;  ///< Made from a required tensor by ops that pass gradients.
  std::vector<bool> reaches;  ///< Feeds a provided tensor through ops that pass gradients.
  bool whole = false;         ///< Gradients are whole: sums over replicas pass them on too.

  bool depends_on_required(const Ir& ir, TensorId t) const { return flag(depends, ir, t); }
  bool reaches_provided(const Ir& ir, TensorId t) const { return flag(reaches, ir, t); }

 private:
  /// Tensors that were added later (outputs of calls that gained some) take no part.
  static bool flag(const std::vector<bool>& flags, const Ir& ir, TensorId t) {
    return t != kNone && ir.tensor(t).index < flags.size() && flags[ir.tensor(t).index];
  }
};

/// `flows` holds every graph that `graph` calls. `whole`: Activity::whole.
Activity find_activity(const Ir& ir, GraphId graph, const std::vector<TensorId>& provided,
                       const std::vector<TensorId>& required, const CallFlows& flows, bool whole);

/// The first op that takes what is made from `t` and passes no gradient on.
std::optional<OpId> where_gradients_stop(const Ir& ir, TensorId t, bool whole);

/// Must a gradient go through this op, from an output that reaches a provided tensor to a wanted input?
bool is_active(const Ir& ir, const Op& op, const Activity& activity);

}  // namespace popsr
