#include "popsr/transform/autodiff_activity.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Activity of the operands of an op that calls graphs; nullopt for others. A conditional passes gradients
/// that one of its branches passes.
std::optional<CallFlow> flow_of(const Ir& ir, const Op& op, const CallFlows& flows) {
  if (!is_call(op)) return std::nullopt;
  CallFlow flow{std::vector<bool>(op.inputs.size()), std::vector<bool>(op.outputs.size())};
  for (const CalledGraph& called : called_graphs(ir, op)) {
    const CallFlow& callee = flows.at(called.graph);
    std::copy(callee.inputs.begin(), callee.inputs.end(), flow.inputs.begin() + called.first);
    for (std::size_t k = 0; k < std::min(flow.outputs.size(), callee.outputs.size()); ++k) {
      flow.outputs[k] = flow.outputs[k] || callee.outputs[k];
    }
  }
  return flow;
}

/// True for ops with a gradient rule for whole gradients; of reductions, for sums and means.
bool passes_whole(const Op& op) {
  if (op.def->grad.of_whole == nullptr) return false;
  if (op.def->replicas.collective != Collective::kReduce) return true;
  const CollectiveOp how = op.get(kReduction);
  return how == CollectiveOp::kAdd || how == CollectiveOp::kMean;
}

/// Ops that are refused on the way (a missing gradient that throws, an op that modifies) lets flags through,
/// so that the error is raised. Gradients stop at a repeat.
bool passes_gradients(const Op& op, bool whole) {
  const OpDef& def = *op.def;
  if (is_call(op) || (whole && passes_whole(op))) return true;
  return def.grad.exists() || def.grad.missing == NoGrad::kThrows || !effects_of(op).empty();
}

/// Outputs that a call gained after its flow was found carry no gradient.
bool open(const std::vector<bool>* gates, std::size_t i) {
  return gates == nullptr || (i < gates->size() && (*gates)[i]);
}

/// If a flagged tensor of `from` is open, flags the open floating tensors of `to`.
void propagate(const Ir& ir, std::vector<bool>& flags, const std::vector<TensorId>& from,
               const std::vector<bool>* from_gates, const std::vector<TensorId>& to,
               const std::vector<bool>* to_gates) {
  bool any = false;
  for (std::size_t i = 0; i < from.size() && !any; ++i) {
    any = from[i] != kNone && open(from_gates, i) && flags[ir.tensor(from[i]).index];
  }
  for (std::size_t i = 0; any && i < to.size(); ++i) {
    if (to[i] == kNone || !open(to_gates, i) || !is_float(ir.tensor(to[i]).type.dtype)) continue;
    flags[ir.tensor(to[i]).index] = true;
  }
}

std::vector<bool> seeds(const Ir& ir, GraphId graph, const std::vector<TensorId>& tensors) {
  std::vector<bool> flags(ir.graph(graph).tensors.size(), false);
  for (const TensorId t : tensors) flags[ir.tensor(t).index] = is_float(ir.tensor(t).type.dtype);
  return flags;
}

}  // namespace

Activity find_activity(const Ir& ir, GraphId graph, const std::vector<TensorId>& provided,
                       const std::vector<TensorId>& required, const CallFlows& flows, bool whole) {
  Activity activity{seeds(ir, graph, required), seeds(ir, graph, provided), whole};
  const std::vector<OpId> ops = single_ops(ir, graph);
  for (const OpId id : ops) {
    const Op& op = ir.op(id);
    if (!passes_gradients(op, whole)) continue;
    const std::optional<CallFlow> flow = flow_of(ir, op, flows);
    propagate(ir, activity.depends, op.inputs, flow ? &flow->inputs : nullptr, op.outputs,
              flow ? &flow->outputs : nullptr);
  }
  for (const OpId id : std::views::reverse(ops)) {
    const Op& op = ir.op(id);
    if (!passes_gradients(op, whole)) continue;
    const std::optional<CallFlow> flow = flow_of(ir, op, flows);
    propagate(ir, activity.reaches, op.outputs, flow ? &flow->outputs : nullptr, op.inputs,
              flow ? &flow->inputs : nullptr);
  }
  return activity;
}

bool is_call(const Op& op) {
  return op.def->program.control == Control::kCall || op.def->program.control == Control::kConditional;
}

std::optional<OpId> where_gradients_stop(const Ir& ir, TensorId t, bool whole) {
  const GraphId graph = ir.tensor(t).graph;
  std::vector<bool> made = seeds(ir, graph, {t});
  for (const OpId id : single_ops(ir, graph)) {
    const Op& op = ir.op(id);
    const bool takes = std::ranges::any_of(
        op.inputs, [&](TensorId input) { return input != kNone && made[ir.tensor(input).index]; });
    if (takes && !passes_gradients(op, whole)) return id;
    propagate(ir, made, op.inputs, nullptr, op.outputs, nullptr);
  }
  return std::nullopt;
}

bool is_active(const Ir& ir, const Op& op, const Activity& activity) {
  return passes_gradients(op, activity.whole) &&
         std::ranges::any_of(op.inputs, [&](TensorId t) { return activity.depends_on_required(ir, t); }) &&
         std::ranges::any_of(op.outputs, [&](TensorId t) { return activity.reaches_provided(ir, t); });
}

}  // namespace popsr
