// The gradient of a conditional: a conditional on the same condition.
//
// Its branches are graphs that call the gradient graphs of the forward branches, so each replica runs the
// gradient of what it ran. Results are the gradients of the tensors that were passed, each once: what a
// branch does not take, or lets no gradient through to, has zeros there. Forward values are inputs of a
// branch, its outputs, which are the conditional's where that branch ran, or computed again in its gradient
// graph.
#include <algorithm>
#include <string>
#include <utility>

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/autodiff_builder.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {

/// The wanted tensors that some branch has a gradient of, in the order in which they are passed.
std::vector<TensorId> GradGraphBuilder::targets_of_conditional(const Op& op) const {
  std::vector<TensorId> targets;
  for (const CalledGraph& branch : called_graphs(ir_, op)) {
    const auto it = called_.find(branch.graph);
    if (it == called_.end()) continue;
    for (const std::size_t i : inputs_of_outputs(it->second)) {
      if (branch.first + i >= branch.end) continue;
      const TensorId passed = op.inputs[branch.first + i];
      if (wants(passed) && std::ranges::find(targets, passed) == targets.end()) targets.push_back(passed);
    }
  }
  return targets;
}

std::vector<TensorId> GradGraphBuilder::grad_of_conditional(const Op& op,
                                                            const std::vector<TensorId>& cotangents) {
  std::vector<TensorId> gradients(op.inputs.size(), kNone);
  const std::vector<TensorId> targets = targets_of_conditional(op);
  if (targets.empty()) return gradients;
  std::vector<TensorId> inputs{value(op.inputs[0])};
  std::vector<GraphId> branches;
  for (const CalledGraph& branch : called_graphs(ir_, op)) {
    const auto it = called_.find(branch.graph);
    const GradGraph* const callee = it == called_.end() ? nullptr : &it->second;
    branches.push_back(gradient_branch(op, branch.first, callee, branch.graph, targets));
    if (callee == nullptr) continue;
    const std::vector<TensorId> own = arguments(op, branch.first, *callee, cotangents);
    inputs.insert(inputs.end(), own.begin(), own.end());
  }
  const OpId made =
      ir_.emit(graph_, "conditional", std::move(inputs),
               {.attrs = {{"then_branch", branches[0]}, {"else_branch", branches[1]}}, .origin = op.origin});
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const auto at = std::ranges::find(op.inputs.begin() + 1, op.inputs.end(), targets[k]) - op.inputs.begin();
    gradients[static_cast<std::size_t>(at)] = ir_.op(made).outputs[k];
  }
  return gradients;
}

/// Builds one branch, with the inputs of `callee` and a gradient for each target.
GraphId GradGraphBuilder::gradient_branch(const Op& op, std::size_t first, const GradGraph* callee,
                                          GraphId branch, const std::vector<TensorId>& targets) {
  const GraphId made = ir_.create_named_graph(ir_.graph(branch).name + "_bwd_branch");
  std::vector<std::vector<TensorId>> terms(targets.size());
  if (callee != nullptr) {
    std::vector<TensorId> inputs;
    const std::string& prefix = ir_.graph(callee->graph).name;
    for (const TensorId input : std::vector(ir_.graph(callee->graph).inputs)) {
      const std::string name = ir_.tensor(input).name.substr(prefix.size() + 1);
      inputs.push_back(ir_.add_input(made, name, ir_.tensor(input).type, ir_.tensor(input).meta_shape));
    }
    const OpId call =
        ir_.emit(made, "call", std::move(inputs), {.attrs = {{"graph", callee->graph}}, .origin = op.origin});
    const std::vector<std::size_t> passed = inputs_of_outputs(*callee);
    for (std::size_t k = 0; k < passed.size(); ++k) {
      if (passed[k] >= ir_.graph(branch).inputs.size()) continue;  // of an intermediate value
      const auto target = std::ranges::find(targets, op.inputs[first + passed[k]]);
      if (target == targets.end()) continue;
      terms[static_cast<std::size_t>(target - targets.begin())].push_back(ir_.op(call).outputs[k]);
    }
  }
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const TensorId sum =
        terms[t].empty() ? zeros(made, targets[t], op.origin) : add(made, terms[t], "add_out", op.origin);
    ir_.add_output(made, sum);
  }
  const auto inputs = static_cast<std::uint32_t>(ir_.graph(made).inputs.size());
  GraphEditor(ir_).set_gradient_graph(made, {.forward = branch, .num_inputs = inputs});
  return made;
}

}  // namespace popsr
