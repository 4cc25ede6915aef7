#include "popsr/analysis/partition_analysis.h"

#include <algorithm>

#include "popsr/analysis/context_solver.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {

std::vector<TensorId> entry_tensors(const Ir& ir, GraphId graph) {
  if (graph != kMainGraph) return ir.graph(graph).inputs;
  std::vector<TensorId> variables;
  for (const TensorId id : ir.graph(graph).tensors) {
    if (ir.tensor(id).kind == TensorKind::kVariable) variables.push_back(id);
  }
  return variables;
}

PartitionAnalysis::PartitionAnalysis(const Ir& ir) : ir_(&ir), epoch_(ir.epoch()) {
  PartitionTable& table = ir.partitions();
  std::vector<PartitionId> variables;
  for (const TensorId id : entry_tensors(ir, kMainGraph)) {
    variables.push_back(ir.tensor(id).grouping->partition(table));
  }
  // Greatest fixpoint across runs: each pass can only split blocks, so it ends.
  for (;;) {
    main_ = solve(kMainGraph, variables, table.top());
    std::vector<PartitionId> next = variables;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = table.meet(next[i], main().final_inputs[i]);
    if (next == variables) break;
    variables = std::move(next);
  }
  const std::vector<TensorId> entry = entry_tensors(ir, kMainGraph);
  for (std::size_t i = 0; i < entry.size(); ++i) variables_.emplace(entry[i], variables[i]);
  list_reachable();
}

void PartitionAnalysis::check_fresh() const {
  if (epoch_ != ir_->epoch()) {
    raise<GraphError>(
        "analyze: the program changed since these facts were computed, got version {}, expected {}",
        ir_->epoch(), epoch_);
  }
}

ContextId PartitionAnalysis::solve(GraphId graph, const std::vector<PartitionId>& inputs, PartitionId exec) {
  std::vector<PartitionId> key{graph.value, exec};
  key.insert(key.end(), inputs.begin(), inputs.end());
  if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
  Context context = ContextSolver(*this, graph, inputs, exec).run();
  const auto id = static_cast<ContextId>(contexts_.size());
  contexts_.push_back(std::move(context));
  memo_.emplace(std::move(key), id);
  return id;
}

void PartitionAnalysis::mark_reachable(ContextId id, std::vector<bool>& seen) const {
  if (seen[id]) return;
  seen[id] = true;
  for (const OpFacts& facts : contexts_[id].ops) {
    if (facts.callee != kNone) mark_reachable(facts.callee, seen);
  }
}

void PartitionAnalysis::list_reachable() {
  std::vector<bool> seen(contexts_.size(), false);
  mark_reachable(main_, seen);
  reachable_.resize(ir_->num_graphs());
  for (ContextId id = 0; id < contexts_.size(); ++id) {
    if (seen[id]) reachable_[contexts_[id].graph.value].push_back(id);
  }
}

const std::vector<ContextId>& PartitionAnalysis::contexts(GraphId graph) const {
  check_fresh();
  return reachable_[graph.value];
}

PartitionId PartitionAnalysis::variable(TensorId id) const {
  const auto it = variables_.find(id);
  return it == variables_.end() ? ir_->partitions().top() : it->second;
}

std::vector<std::pair<int, PartitionId>> PartitionAnalysis::values(TensorId id, ContextId context_id) const {
  check_fresh();
  const Tensor& tensor = ir_->tensor(id);
  const Context& context = contexts_[context_id];
  const Graph& graph = ir_->graph(context.graph);
  POPSR_CHECK(tensor.graph == graph.id);
  std::vector<std::pair<int, PartitionId>> result;
  if (tensor.producer == kNone) {
    const std::vector<TensorId> entry = entry_tensors(*ir_, graph.id);
    const auto it = std::ranges::find(entry, id);
    result.emplace_back(
        -1, it == entry.end() ? context.exec : context.inputs[static_cast<std::size_t>(it - entry.begin())]);
  }
  for (std::size_t at = 0; at < graph.ops.size(); ++at) {
    const Op& op = ir_->op(graph.ops[at]);
    if (tensor.producer != kNone && op.id < tensor.producer) continue;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      if (ir_->tensor(op.outputs[k]).storage == tensor.storage) {
        result.emplace_back(static_cast<int>(at), context.ops[at].outputs[k]);
      }
    }
    for (const auto& [storage, fact] : context.ops[at].written) {
      if (storage == tensor.storage) result.emplace_back(static_cast<int>(at), fact);
    }
  }
  return result;
}

PartitionId PartitionAnalysis::partition(TensorId id) const {
  check_fresh();
  const Tensor& tensor = ir_->tensor(id);
  const std::uint32_t storage = ir_->tensor(tensor.storage).index;
  PartitionId fact = ir_->partitions().top();
  for (const ContextId context : contexts(tensor.graph)) {
    fact = ir_->partitions().meet(fact, contexts_[context].last[storage]);
  }
  return fact;
}

PartitionId PartitionAnalysis::seeds(OpId id) const {
  check_fresh();
  const std::vector<OpId>& ops = ir_->graph(ir_->op(id).graph).ops;
  const auto at = static_cast<std::size_t>(std::ranges::lower_bound(ops, id) - ops.begin());
  PartitionId seeds = ir_->partitions().top();
  for (const ContextId context : contexts(ir_->op(id).graph)) {
    seeds = ir_->partitions().meet(seeds, contexts_[context].ops[at].seeds);
  }
  return seeds;
}

}  // namespace popsr
