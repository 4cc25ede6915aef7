#include "popsr/transform/autodiff.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <string>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/calls/inlined_size.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/autodiff_activity.h"
#include "popsr/transform/autodiff_builder.h"
#include "popsr/transform/whole_gradients.h"

namespace popsr {
namespace {

/// Request for one graph, in the order of its gradient graph's inputs and outputs.
struct Demand {
  std::vector<TensorId> provided;
  std::vector<TensorId> required;
};

std::vector<TensorId> distinct(const std::vector<TensorId>& tensors) {
  std::vector<TensorId> result;
  for (const TensorId t : tensors) {
    if (std::ranges::find(result, t) == result.end()) result.push_back(t);
  }
  return result;
}

/// Differentiates a graph and the graphs it calls: flows callee first, demands caller first, emission callee
/// first, so that a call has gained its outputs before its caller's gradient graph reads them.
class Autodiff {
 public:
  Autodiff(Ir& ir, GraphId root, const AutodiffOptions& options)
      : ir_(ir), root_(root), options_(options), results_(options.called) {
    if (options.sums_replicas) whole_.emplace(ir, root);
  }

  std::map<GraphId, GradGraph> run() {
    resolve_options();
    check_not_modifying(root_);
    visit(root_);
    for (const GraphId graph : std::views::reverse(order_)) {
      if (is_asked(graph)) plan(graph);
    }
    check_required();
    for (const GraphId graph : order_) {
      if (is_asked(graph)) build(graph);
    }
    return std::move(results_);
  }

 private:
  void resolve_options();
  void check_graph_of(const std::vector<TensorId>& tensors, std::string_view what) const;
  void check_not_modifying(GraphId graph) const;
  void check_no_throwing(GraphId graph) const;
  void check_required() const;
  [[noreturn]] void raise_missing(TensorId required) const;
  void visit(GraphId graph);
  CallFlow flow_of(GraphId graph) const;
  CallFlow flow_of(const GradGraph& given) const;
  bool is_asked(GraphId graph) const {
    const auto it = demands_.find(graph);
    return it != demands_.end() && !it->second.required.empty() &&
           (graph == root_ || !it->second.provided.empty());
  }
  void plan(GraphId graph);
  void ask(const Op& call, const CalledGraph& called, const Activity& activity);
  void build(GraphId graph);

  Ir& ir_;
  GraphId root_;
  const AutodiffOptions& options_;
  std::vector<GraphId> order_;  ///< Graphs to differentiate, callee first.
  CallFlows flows_;
  std::map<GraphId, Demand> demands_;
  std::map<GraphId, Activity> activities_;
  std::map<GraphId, GradGraph> results_;
  std::optional<WholeGradients> whole_;  ///< Set with AutodiffOptions::sums_replicas.
};

void Autodiff::check_graph_of(const std::vector<TensorId>& tensors, std::string_view what) const {
  for (const TensorId t : tensors) {
    if (ir_.tensor(t).graph == root_) continue;
    raise<GraphError>("autodiff: {} has a tensor of another graph, got '{}', expected one of {}", what,
                      ir_.tensor(t).name, in_words(ir_.graph(root_)));
  }
}

void Autodiff::resolve_options() {
  const Graph& graph = ir_.graph(root_);
  Demand demand{distinct(options_.grads_provided.value_or(graph.outputs)),
                options_.grads_required.value_or(graph.inputs)};
  check_graph_of(demand.provided, "grads_provided");
  check_graph_of(demand.required, "grads_required");
  if (demand.required.empty()) {
    raise<GraphError>("autodiff: no gradients are required, got [], expected at least one tensor of {}",
                      in_words(graph));
  }
  demands_.emplace(root_, std::move(demand));
}

void Autodiff::check_not_modifying(GraphId graph) const {
  for (const OpId id : single_ops(ir_, graph)) {
    const Op& op = ir_.op(id);
    if (effects_of(op).empty() && op.call.modified.empty()) continue;
    raise<GraphError>(
        "The graph {} contains a modifying op, got {} at {}, expected only ops that modify nothing",
        ir_.graph(graph).name, op.def->name, ir_.locations().to_string(op.origin.location));
  }
}

void Autodiff::check_no_throwing(GraphId graph) const {
  for (const OpId id : single_ops(ir_, graph)) {
    const Op& op = ir_.op(id);
    const bool has_grad =
        op.def->grad.exists() && !(op.def->grad.refuses != nullptr && op.def->grad.refuses(op));
    if (is_call(op) || has_grad || (whole_ && op.def->grad.of_whole != nullptr)) continue;
    if (!is_active(ir_, op, activities_.at(graph))) continue;
    raise<GraphError>("autodiff: {} has no gradient, got '{}' made at {}, expected a differentiable op",
                      op.def->name, ir_.tensor(op.outputs[0]).name,
                      ir_.locations().to_string(op.origin.location));
  }
}

void Autodiff::raise_missing(TensorId required) const {
  const std::optional<OpId> stop = where_gradients_stop(ir_, required, options_.sums_replicas);
  const std::string got = !stop ? ""
                                : fmt::format(", got {} at {} that passes none on", ir_.op(*stop).def->name,
                                              ir_.locations().to_string(ir_.op(*stop).origin.location));
  raise<GraphError>(
      "autodiff: unable to provide required gradient of '{}' {}{}, expected a floating tensor on the way to "
      "a provided gradient",
      ir_.tensor(required).name, to_string(ir_.tensor(required).type), got);
}

void Autodiff::check_required() const {
  const Activity& activity = activities_.at(root_);
  for (const TensorId t : demands_.at(root_).required) {
    if (!activity.depends_on_required(ir_, t) || !activity.reaches_provided(ir_, t)) raise_missing(t);
  }
}

void Autodiff::visit(GraphId graph) {
  if (flows_.contains(graph)) return;
  if (const auto given = options_.called.find(graph); given != options_.called.end() && graph != root_) {
    flows_.emplace(graph, flow_of(given->second));
    return;
  }
  for (const OpId id : single_ops(ir_, graph)) {
    if (!is_call(ir_.op(id))) continue;
    for (const CalledGraph& called : called_graphs(ir_, ir_.op(id))) visit(called.graph);
  }
  flows_.emplace(graph, flow_of(graph));
  order_.push_back(graph);
}

CallFlow Autodiff::flow_of(GraphId id) const {
  const Graph& graph = ir_.graph(id);
  const Activity all = find_activity(ir_, id, graph.outputs, graph.inputs, flows_, options_.sums_replicas);
  CallFlow flow;
  for (const TensorId t : graph.inputs) flow.inputs.push_back(all.reaches_provided(ir_, t));
  for (const TensorId t : graph.outputs) flow.outputs.push_back(all.depends_on_required(ir_, t));
  return flow;
}

CallFlow Autodiff::flow_of(const GradGraph& given) const {
  const auto holds = [](const std::vector<ExpectedConnection>& connections, TensorId t) {
    return std::ranges::any_of(
        connections, [t](const ExpectedConnection& c) { return c.is_gradient && c.fwd_tensor == t; });
  };
  CallFlow flow;
  for (const TensorId t : ir_.graph(given.forward).inputs) flow.inputs.push_back(holds(given.outputs, t));
  for (const TensorId t : ir_.graph(given.forward).outputs) flow.outputs.push_back(holds(given.inputs, t));
  return flow;
}

/// Finds the tensors of one graph that take part, and the demands of its calls on the graphs they call.
void Autodiff::plan(GraphId graph) {
  const Demand& demand = demands_.at(graph);
  check_not_modifying(graph);
  const Activity& activity = activities_
                                 .emplace(graph, find_activity(ir_, graph, demand.provided, demand.required,
                                                               flows_, options_.sums_replicas))
                                 .first->second;
  check_no_throwing(graph);
  for (const OpId id : single_ops(ir_, graph)) {
    const Op& op = ir_.op(id);
    if (!is_call(op) || !is_active(ir_, op, activity)) continue;
    for (const CalledGraph& called : called_graphs(ir_, op)) ask(op, called, activity);
  }
}

/// Merges the demands of a call: one gradient graph serves all calls, with the inputs and outputs that any
/// of them needs, in the callee's order.
void Autodiff::ask(const Op& call, const CalledGraph& called, const Activity& activity) {
  if (options_.called.contains(called.graph)) return;
  const Graph& callee = ir_.graph(called.graph);
  const CallFlow& flow = flows_.at(called.graph);
  Demand& demand = demands_[called.graph];
  const auto merge = [](const std::vector<TensorId>& all, const std::vector<TensorId>& old, auto&& asked) {
    std::vector<TensorId> merged;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (asked(i) || std::ranges::find(old, all[i]) != old.end()) merged.push_back(all[i]);
    }
    return distinct(merged);
  };
  demand.provided = merge(callee.outputs, demand.provided, [&](std::size_t i) {
    return flow.outputs[i] && activity.reaches_provided(ir_, call.outputs[i]);
  });
  demand.required = merge(callee.inputs, demand.required, [&](std::size_t i) {
    return flow.inputs[i] && activity.depends_on_required(ir_, call.inputs[called.first + i]);
  });
}

void Autodiff::build(GraphId graph) {
  const Demand& demand = demands_.at(graph);
  GradGraphBuilder builder(ir_, graph, activities_.at(graph), results_, whole_ ? &*whole_ : nullptr);
  GradGraph result = builder.build(demand.provided, demand.required);
  for (std::size_t i = 0; graph == root_ && i < demand.required.size(); ++i) {
    const bool has = i < result.outputs.size() && result.outputs[i].fwd_tensor == demand.required[i];
    if (!has) raise_missing(demand.required[i]);
  }
  results_.insert_or_assign(graph, std::move(result));
}

}  // namespace

std::map<GraphId, GradGraph> autodiff(Ir& ir, GraphId forward, const AutodiffOptions& options) {
  check_inlined_size(ir, forward, "autodiff: the graph", "call it less often");
  Transaction transaction(ir);
  std::map<GraphId, GradGraph> graphs = with_deep_stack([&] { return Autodiff(ir, forward, options).run(); });
  transaction.commit();
  return graphs;
}

}  // namespace popsr
