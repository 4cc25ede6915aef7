// Emits the gradient graph of one forward graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "popsr/ir/gradient_graph.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/autodiff_activity.h"
#include "popsr/transform/whole_gradients.h"

namespace popsr {

/// Builder of one gradient graph. Ops are differentiated from the last to the first. The gradient of a
/// tensor is the chain of "add" over, in this order: its provided gradient, then the contributions of its
/// consumers from the last to the first (of one consumer in ascending input order).
class GradGraphBuilder {
 public:
  /// Makes a builder; `called` holds the gradient graphs of the graphs that active calls of `forward` call.
  GradGraphBuilder(Ir& ir, GraphId forward, const Activity& activity,
                   const std::map<GraphId, GradGraph>& called, const WholeGradients* whole);

  /// Builds the graph; its outputs are the gradients of the `required` tensors that get one.
  GradGraph build(const std::vector<TensorId>& provided, const std::vector<TensorId>& required);

 private:
  struct Sum {
    std::vector<TensorId> terms;
    LocationId location = {};
    std::vector<GradientShare> shares = {};  ///< Shares of the terms, if gradients are made whole.
  };

  void find_call_sites();
  void differentiate(const Op& op);
  std::vector<TensorId> grad_of(const Op& op, const std::vector<TensorId>& cotangents);
  std::vector<TensorId> grad_of_op(const Op& op, const std::vector<TensorId>& cotangents);
  std::vector<TensorId> grad_of_call(const Op& op, const std::vector<TensorId>& cotangents);
  std::vector<TensorId> grad_of_conditional(const Op& op, const std::vector<TensorId>& cotangents);
  std::vector<TensorId> targets_of_conditional(const Op& op) const;
  GraphId gradient_branch(const Op& op, std::size_t first, const GradGraph* callee, GraphId branch,
                          const std::vector<TensorId>& targets);
  std::vector<TensorId> arguments(const Op& op, std::size_t first, const GradGraph& callee,
                                  const std::vector<TensorId>& cotangents);
  std::vector<std::size_t> inputs_of_outputs(const GradGraph& callee) const;
  TensorId cotangent_of_call(const Op& op, TensorId callee_output, const std::vector<TensorId>& cotangents);
  TensorId forward_of_call(const Op& op, std::size_t first, TensorId callee_tensor);
  bool wants(TensorId forward) const { return activity_.depends_on_required(ir_, forward); }

  /// Gradient of a forward tensor, summed at its first use; kNone if it has none.
  TensorId gradient(TensorId forward);
  void make_whole(TensorId forward, Sum& sum);
  TensorId exchange(std::string_view op, TensorId t, const ReplicaGrouping& group, Origin origin);
  TensorId called_input(const Op& op, std::size_t input) const;
  TensorId add_gradients(TensorId forward, const std::vector<TensorId>& terms, Origin origin);
  TensorId add(GraphId graph, const std::vector<TensorId>& terms, const std::string& name, Origin origin);
  TensorId zeros(GraphId graph, TensorId forward, Origin origin);

  void name_gradients();
  void note_gradients(const std::vector<TensorId>& provided);

  /// Value of a forward tensor in the gradient graph.
  TensorId value(TensorId forward);
  TensorId connect(TensorId forward);
  void stitch(TensorId forward);
  void recompute(TensorId forward);
  void clone(const Op& op);
  bool is_recomputed(TensorId forward) const;
  std::string local_name(TensorId forward) const;

  Ir& ir_;
  GraphId forward_;
  GraphId graph_;
  const Activity& activity_;
  const std::map<GraphId, GradGraph>& called_;
  /// Sums for whole gradients; null: gradients are each replica's contributions.
  const WholeGradients* whole_;
  std::vector<OpId> calls_;  ///< All calls of the forward graph, in any graph.
  /// Largest number of values of the forward graph's calls; each call gets outputs for them, so they
  /// multiply from level to level.
  static constexpr std::size_t kMaxValuesOfCalls = std::size_t{1} << 18;
  std::size_t values_of_calls_ = 0;
  bool can_stitch_ = true;  ///< True if only calls run the forward graph, so that it can gain outputs.
  std::set<TensorId> connectable_;  ///< Inputs and outputs of the forward graph.
  std::unordered_map<TensorId, Sum> sums_;
  std::unordered_map<TensorId, TensorId> values_;
  GradGraph result_;
  GradientGraph made_;
  /// Contributions that are added, each with its forward tensor.
  std::vector<std::pair<TensorId, TensorId>> parts_;
};

}  // namespace popsr
