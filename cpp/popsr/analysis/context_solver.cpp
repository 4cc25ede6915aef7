#include "popsr/analysis/context_solver.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

ContextSolver::ContextSolver(PartitionAnalysis& analysis, GraphId graph,
                             const std::vector<PartitionId>& inputs, PartitionId exec)
    : analysis_(analysis), ir_(analysis.ir()), table_(ir_.partitions()) {
  context_.graph = graph;
  context_.inputs = inputs;
  context_.exec = exec;
  // Constants are equal wherever they are read; op outputs are set before they are read.
  state_.assign(ir_.graph(graph).tensors.size(), exec);
  const std::vector<TensorId> entry = entry_tensors(ir_, graph);
  POPSR_CHECK(entry.size() == inputs.size());
  for (std::size_t i = 0; i < entry.size(); ++i) fact(entry[i]) = table_.meet(inputs[i], exec);
}

PartitionId& ContextSolver::fact(TensorId tensor) {
  return state_[ir_.tensor(ir_.tensor(tensor).storage).index];
}

std::vector<PartitionId> ContextSolver::input_facts(const Op& op) const {
  std::vector<PartitionId> facts(op.inputs.size(), table_.top());
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (op.inputs[i] != kNone) facts[i] = state_[ir_.tensor(ir_.tensor(op.inputs[i]).storage).index];
  }
  return facts;
}

Context ContextSolver::run() {
  const Graph& graph = ir_.graph(context_.graph);
  context_.ops.reserve(graph.ops.size());
  for (const OpId id : graph.ops) context_.ops.push_back(transfer(ir_.op(id)));
  for (const TensorId output : graph.outputs) context_.outputs.push_back(fact(output));
  for (const TensorId entry : entry_tensors(ir_, graph.id)) context_.final_inputs.push_back(fact(entry));
  context_.last = std::move(state_);
  return std::move(context_);
}

OpFacts ContextSolver::transfer(const Op& op) {
  const std::vector<PartitionId> in = input_facts(op);
  OpFacts facts;
  switch (op.def->control) {
    case Control::kNone:
      facts = transfer_local(op, in);
      break;
    case Control::kCall:
      facts = transfer_call(op, in);
      break;
    case Control::kRepeat:
      facts = transfer_repeat(op, in);
      break;
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) fact(op.outputs[k]) = facts.outputs[k];
  return facts;
}

OpFacts ContextSolver::transfer_local(const Op& op, const std::vector<PartitionId>& in) {
  OpFacts facts;
  const RuleContext rule{table_, ir_, op, in, context_.exec};
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    facts.outputs.push_back(table_.meet(op.def->partition(rule, k), context_.exec));
  }
  if (!op.seeds) return facts;
  // The join breaks no proof: rounding is a function of (inputs, seed block), and outputs already agree
  // inside it.
  facts.seeds = table_.top();
  if (*op.seeds == SeedRule::kPartition) {
    facts.seeds = table_.bottom();
    for (const PartitionId output : facts.outputs) facts.seeds = table_.join(facts.seeds, output);
  }
  for (PartitionId& output : facts.outputs) {
    const PartitionId deterministic = output;
    output = table_.meet(output, facts.seeds);
    POPSR_CHECK(*op.seeds != SeedRule::kPartition || output == deterministic);
  }
  return facts;
}

void ContextSolver::write_modified(const Op& op, const std::vector<PartitionId>& final_inputs,
                                   OpFacts& facts) {
  for (const std::uint32_t i : op.modified) {
    const TensorId storage = ir_.tensor(op.inputs[i]).storage;
    const auto it = std::ranges::find(facts.written, storage, &std::pair<TensorId, PartitionId>::first);
    if (it == facts.written.end()) {
      facts.written.emplace_back(storage, final_inputs[i]);
    } else {
      it->second = table_.meet(it->second, final_inputs[i]);
    }
  }
  for (const auto& [storage, written] : facts.written) fact(storage) = written;
}

OpFacts ContextSolver::transfer_call(const Op& op, const std::vector<PartitionId>& in) {
  OpFacts facts;
  facts.callee = analysis_.solve(op.attr<GraphId>("graph"), in, context_.exec);
  facts.outputs = analysis_.context(facts.callee).outputs;
  write_modified(op, analysis_.context(facts.callee).final_inputs, facts);
  return facts;
}

OpFacts ContextSolver::transfer_repeat(const Op& op, std::vector<PartitionId> in) {
  OpFacts facts;
  const std::size_t carried = op.outputs.size();
  if (op.attr<std::int64_t>("count") == 0) {
    facts.outputs.assign(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carried));
    return facts;
  }
  // Greatest fixpoint of the values that one iteration hands to the next.
  for (bool changed = true; changed;) {
    facts.callee = analysis_.solve(op.attr<GraphId>("graph"), in, context_.exec);
    const Context& body = analysis_.context(facts.callee);
    changed = false;
    const auto fall = [&](std::size_t i, PartitionId next) {
      const PartitionId met = table_.meet(in[i], next);
      changed |= met != in[i];
      in[i] = met;
    };
    for (std::size_t i = 0; i < carried; ++i) fall(i, body.outputs[i]);
    for (const std::uint32_t i : op.modified) {
      if (i >= carried) fall(i, body.final_inputs[i]);
    }
  }
  const Context& body = analysis_.context(facts.callee);
  facts.outputs = body.outputs;
  std::vector<PartitionId> final_inputs = body.final_inputs;
  for (std::size_t i = 0; i < carried; ++i) final_inputs[i] = body.outputs[i];
  write_modified(op, final_inputs, facts);
  return facts;
}

}  // namespace popsr
