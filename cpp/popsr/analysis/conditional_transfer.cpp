// Transfer of a conditional. Replicas that agree on the condition run one branch together; what they agree on
// afterwards, they agreed on in whichever branch it was.
#include <algorithm>

#include "popsr/analysis/context_solver.h"
#include "popsr/base/error.h"
#include "popsr/base/sorted.h"
#include "popsr/effects/memory.h"

namespace popsr {

ContextId ContextSolver::solve_branch(const CalledGraph& branch, const std::vector<PartitionId>& in,
                                      NarrowingId narrowing) {
  const PartitionId exec = analysis_.narrowing(narrowing).exec;
  std::vector<PartitionId> inputs(in.begin() + branch.first, in.begin() + branch.end);
  std::vector<PartitionId> remote = remote_facts(branch.graph);
  for (PartitionId& input : inputs) input = table_.meet(input, exec);
  for (PartitionId& entry : remote) entry = table_.meet(entry, exec);
  return analysis_.solve(branch.graph, inputs, remote, narrowing);
}

ContextSolver::Changes ContextSolver::changes_of(const Op& op, const CalledGraph& branch,
                                                 const Context& callee) {
  Changes changes;
  const auto write = [this, &changes](TensorId storage, PartitionId last) {
    const auto [it, fresh] = changes.tensors.emplace(storage, last);
    if (!fresh) it->second = table_.meet(it->second, last);
  };
  for (const std::uint32_t i : op.call.modified) {
    if (i < branch.first || i >= branch.end || !analysis_.written_.by_call(op, i)) continue;
    write(ir_.tensor(op.inputs[i]).memory.storage, callee.end.inputs[i - branch.first]);
  }
  const std::vector<TensorId>& entries = analysis_.remote_.of(branch.graph);
  for (const TensorId entry : analysis_.remote_.stored(branch.graph)) {
    write(entry, callee.end.remote[sorted_index(entries, entry)]);
  }
  const std::vector<StreamId>& streams = analysis_.streams_.of(branch.graph);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    changes.positions.emplace(streams[i], callee.end.remote[entries.size() + i]);
  }
  return changes;
}

/// A side that leaves a place alone contributes what was there.
void ContextSolver::write_changes(const Changes& taken, const Changes& other, OpFacts& facts) {
  const auto merge = [this](const auto& changed, auto place, PartitionId last, PartitionId old) {
    const auto it = changed.find(place);
    return table_.meet(last, it == changed.end() ? old : it->second);
  };
  for (const auto& [storage, last] : taken.tensors) {
    const auto merged = std::ranges::find(facts.written, storage, &std::pair<TensorId, PartitionId>::first);
    if (merged != facts.written.end()) continue;
    PartitionId now = merge(other.tensors, storage, last, read(storage));
    for (const auto& [place, its_last] : other.tensors) {  // the same memory under another name
      if (place != storage && overlaps(ir_, place, storage)) now = table_.meet(now, its_last);
    }
    facts.written.emplace_back(storage, now);
  }
  for (const auto& [stream, last] : taken.positions) {
    // Met already when the other side was merged first: meeting again changes nothing.
    position(stream) = merge(other.positions, stream, last, position(stream));
  }
}

OpFacts ContextSolver::transfer_conditional(const Op& op, const std::vector<PartitionId>& in) {
  const PartitionId exec = table_.meet(context_.exec, in[0]);
  const NarrowingId narrowing = analysis_.narrow(context_.narrowing, op.id, exec);
  const std::vector<CalledGraph> branches = called_graphs(ir_, op);
  OpFacts facts;
  facts.callee = solve_branch(branches[0], in, narrowing);
  facts.otherwise = solve_branch(branches[1], in, narrowing);
  const Context& taken = analysis_.context(facts.callee);
  const Context& other = analysis_.context(facts.otherwise);
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    // Facts of a branch are finer than the condition.
    facts.outputs.push_back(table_.meet(taken.end.outputs[k], other.end.outputs[k]));
  }
  const Changes then_changes = changes_of(op, branches[0], taken);
  const Changes else_changes = changes_of(op, branches[1], other);
  write_changes(then_changes, else_changes, facts);
  write_changes(else_changes, then_changes, facts);
  for (const auto& [storage, written] : facts.written) write(storage, written);
  return facts;
}

}  // namespace popsr
