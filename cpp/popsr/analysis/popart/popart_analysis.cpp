#include "popsr/analysis/popart/popart_analysis.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Effects of an op, or of the parts of a merged one, in terms of the operands of the whole.
std::vector<Effect> effects_of(const Ir& ir, const Op& op) {
  if (op.schedule.parts.empty()) return effects_of(op);
  std::vector<Effect> effects;
  std::size_t input = 0, output = 0;
  for (const OpId id : op.schedule.parts) {
    const Op& part = ir.op(id);
    for (Effect effect : effects_of(part)) {
      effect.input += input;
      effect.output += output;
      effects.push_back(effect);
    }
    input += part.inputs.size();
    output += part.outputs.size();
  }
  return effects;
}

/// True per output that the reference's op has.
std::vector<bool> outputs_in_popart(const Ir& ir, const Op& op) {
  std::vector<bool> result(op.outputs.size(), true);
  for (const Effect& effect : effects_of(ir, op)) {
    if (!effect.in_popart) result[effect.output] = false;
  }
  return result;
}

Time time_of(const Op& op) { return static_cast<Time>(op.schedule.position); }

/// Constants that seed the random numbers of some op.
std::unordered_set<TensorId> constant_seeds(const Ir& ir) {
  std::unordered_set<TensorId> seeds;
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    for (std::size_t i = 0; i < op.inputs.size() && i < op.def->inputs.size(); ++i) {
      if (op.def->inputs[i].seed) seeds.insert(op.inputs[i]);
    }
  }
  return seeds;
}

}  // namespace

PopartAnalysis::PopartAnalysis(const Ir& ir)
    : ir_(&ir), epoch_(ir.epoch()), aliases_(ir), values_(ir.num_tensors()), visited_(ir.num_tensors()) {
  with_deep_stack([this] {
    set_initial_values();
    solve();
  });
}

void PopartAnalysis::set_initial_values() {
  const std::unordered_set<TensorId> seeds = constant_seeds(*ir_);
  for (const TensorId t : ids<TensorId>(ir_->num_tensors())) {
    const TensorKind kind = ir_->tensor(t).kind;
    if (kind == TensorKind::kConstant) values_.set(t, kInitially, !seeds.contains(t));
    if (kind != TensorKind::kVariable && kind != TensorKind::kShard) continue;
    values_.set(t, kInitially, true);
    variables_.push_back(t);
  }
}

void PopartAnalysis::solve() {
  do {
    values_.clear_flags();
    walk(kMainGraph);
    for (const TensorId variable : variables_) {
      if (!values_.last(variable)) values_.set(variable, kInitially, false);
    }
  } while (values_.changed());
  // Once more, for the disagreements alone.
  values_.clear_flags();
  walk(kMainGraph);
  disagreements_.assign(values_.disagreements().begin(), values_.disagreements().end());
}

void PopartAnalysis::walk(GraphId graph) {
  for (const OpId id : ir_->graph(graph).ops) record(ir_->op(id), transfer(ir_->op(id)));
}

PopartAnalysis::Ends PopartAnalysis::propagate(GraphId id, const std::vector<bool>& inputs) {
  const Graph& graph = ir_->graph(id);
  bool changed = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    changed |= values_.set(graph.inputs[i], kInitially, inputs[i]);
  }
  if (changed) walk(id);
  Ends ends;
  for (const TensorId input : graph.inputs) ends.inputs.push_back(values_.last(input));
  for (const TensorId output : graph.outputs) {
    if (!values_.known(output)) {
      raise<GraphError>(
          "analyze: graph '{}' has no inputs, so mode 'popart' never looks at it, got no value of '{}', "
          "expected a graph with inputs",
          graph.name, ir_->tensor(output).name);
    }
    ends.outputs.push_back(values_.last(output));
  }
  return ends;
}

std::vector<bool> PopartAnalysis::inputs_of(const Op& op) const {
  std::vector<bool> inputs;
  for (const TensorId input : op.inputs) {
    inputs.push_back(input == kNone || values_.before(input, time_of(op)));
  }
  return inputs;
}

PopartAnalysis::Results PopartAnalysis::transfer(const Op& op) {
  switch (op.def->program.control) {
    case Control::kNone:
      return transfer_local(op);
    case Control::kCall:
    case Control::kRepeat:
      return transfer_call(op);
    case Control::kConditional:
      return transfer_conditional(op);
  }
  POPSR_CHECK(false);
}

/// An input that is written is equal when an equal output holds all of it.
PopartAnalysis::Results PopartAnalysis::transfer_local(const Op& op) const {
  const PopartContext context{*ir_, op, inputs_of(op)};
  const std::vector<bool> exists = outputs_in_popart(*ir_, op);
  Results results;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    results.outputs.push_back(exists[k] && op.def->replicas.popart(context, k));
  }
  for (const Effect& effect : effects_of(*ir_, op)) {
    bool equal = false;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      equal |= results.outputs[k] && aliases_.contains(op.outputs[k], op.inputs[effect.input]);
    }
    results.modified.emplace_back(effect.input, equal);
  }
  return results;
}

/// A loop is a call here: its body is walked once, whatever the count.
/// Results of a while_loop are equal only when all its operands are, and its body keeps them equal.
PopartAnalysis::Results PopartAnalysis::transfer_call(const Op& op) {
  const std::vector<bool> in = inputs_of(op);
  Ends ends = propagate(op.get(kGraph), in);
  const auto all = [](const std::vector<bool>& equal) {
    return std::ranges::find(equal, false) == equal.end();
  };
  if (is_while_loop(op) && !(all(in) && all(ends.outputs))) {
    ends = propagate(op.get(kGraph), std::vector<bool>(in.size(), false));
    ends.outputs.assign(ends.outputs.size(), false);
    ends.inputs.assign(ends.inputs.size(), false);
  }
  Results results{.outputs = ends.outputs};
  for (const std::uint32_t i : op.call.modified) results.modified.emplace_back(i, ends.inputs[i]);
  return results;
}

/// Results of a conditional: the condition has no influence, and values that branches write by reference
/// are not reported.
PopartAnalysis::Results PopartAnalysis::transfer_conditional(const Op& op) {
  const std::vector<bool> in = inputs_of(op);
  Results results{.outputs = std::vector<bool>(op.outputs.size(), true)};
  for (const CalledGraph& branch : called_graphs(*ir_, op)) {
    const Ends ends = propagate(branch.graph, {in.begin() + branch.first, in.begin() + branch.end});
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      results.outputs[k] = results.outputs[k] && ends.outputs[k];
    }
  }
  return results;
}

void PopartAnalysis::record(const Op& op, const Results& results) {
  std::vector<std::pair<TensorId, bool>> updates;
  const std::vector<bool> exists = outputs_in_popart(*ir_, op);
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    if (exists[k]) updates.emplace_back(op.outputs[k], results.outputs[k]);
  }
  for (const auto& [input, equal] : results.modified) updates.emplace_back(op.inputs[input], equal);
  for (const auto& [tensor, equal] : updates) values_.set(tensor, time_of(op), equal);
  record_aliases(time_of(op), updates);
}

/// Marks aliases contained in regions that became equal, then those that overlap a region that did not.
/// Each alias is visited once, even if nothing was recorded for it.
void PopartAnalysis::record_aliases(Time now, const std::vector<std::pair<TensorId, bool>>& updates) {
  ++round_;
  const auto visit = [this](TensorId t) { return std::exchange(visited_[t], round_) != round_; };
  for (const auto& [tensor, equal] : updates) visit(tensor);
  for (const bool first : {true, false}) {
    for (const auto& [tensor, equal] : updates) {
      if (equal != first) continue;
      for (const TensorId alias : aliases_.aliases(tensor)) {
        if (!visit(alias)) continue;
        if (!equal || aliases_.contains(tensor, alias)) values_.set(alias, now, equal);
      }
    }
  }
}

// Queries

void PopartAnalysis::check_fresh() const {
  if (epoch_ != ir_->epoch()) {
    raise<GraphError>(
        "analyze: the program changed since these facts were computed, got version {}, expected {}",
        ir_->epoch(), epoch_);
  }
}

void PopartAnalysis::check_known(TensorId tensor) const {
  check_fresh();
  if (values_.known(tensor)) return;
  raise<GraphError>(
      "analyze: mode 'popart' never looks at graph '{}', got no value of '{}', expected a graph with inputs "
      "that is called",
      ir_->graph(ir_->tensor(tensor).graph).name, ir_->tensor(tensor).name);
}

bool PopartAnalysis::is_equal(TensorId tensor) const {
  check_known(tensor);
  return values_.last(tensor);
}

bool PopartAnalysis::is_equal_at(TensorId tensor, Time time) const {
  check_known(tensor);
  const Time first = values_.of(tensor).front().first;
  if (time < first) {
    raise<GraphError>("analyze: '{}' has no value yet, got time {}, expected {} or later",
                      ir_->tensor(tensor).name, time, first);
  }
  return values_.before(tensor, time + 1);
}

bool PopartAnalysis::is_input_equal(OpId id, std::size_t input) const {
  const Op& op = ir_->op(id);
  check_known(op.inputs[input]);
  return values_.before(op.inputs[input], time_of(op));
}

bool PopartAnalysis::is_output_equal(OpId id, std::size_t output) const {
  const Op& op = ir_->op(id);
  check_known(op.outputs[output]);
  return values_.at(op.outputs[output], time_of(op));
}

bool PopartAnalysis::are_outputs_equal(OpId id) const {
  const Op& op = ir_->op(id);
  const std::vector<bool> exists = outputs_in_popart(*ir_, op);
  bool equal = true;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) equal &= !exists[k] || is_output_equal(id, k);
  return equal;
}

std::vector<std::pair<std::string, std::string>> PopartAnalysis::attributes(OpId id) const {
  const Op& op = ir_->op(id);
  std::vector<std::pair<std::string, std::string>> result;
  const auto add = [&result](std::string_view name, std::size_t index, bool equal) {
    result.emplace_back(fmt::format("{}{}", name, index), equal ? "true" : "false");
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] != kNone) add("replEqIn", i, is_input_equal(id, i));
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) add("replEqOut", k, is_output_equal(id, k));
  return result;
}

}  // namespace popsr
