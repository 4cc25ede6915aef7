// Transfer of a conditional. Replicas that agree on the condition run one branch together; what they agree on
// afterwards, they agreed on in whichever branch it was.
#include <algorithm>
#include <utility>

#include "popsr/analysis/solver/context_solver.h"
#include "popsr/base/containers/sorted.h"
#include "popsr/base/error.h"
#include "popsr/effects/memory.h"

namespace popsr {
namespace {

/// Index of the op's input that a branch returns unchanged as its output `k`, if it does.
std::optional<std::uint32_t> handed_on(const Ir& ir, WrittenInputs& written, const CalledGraph& branch,
                                       std::size_t k) {
  const Graph& graph = ir.graph(branch.graph);
  const TensorId storage = ir.tensor(graph.outputs[k]).memory.storage;
  const auto it = std::ranges::find(graph.inputs, storage);
  if (it == graph.inputs.end()) return std::nullopt;
  const auto i = static_cast<std::uint32_t>(it - graph.inputs.begin());
  return written.of(branch.graph)[i] ? std::nullopt : std::optional(branch.first + i);
}

/// The tensor that output `k` of a conditional is a copy of, whichever branch is taken.
TensorId copied_by_both(const Ir& ir, WrittenInputs& written, const Op& op, std::size_t k) {
  const std::vector<CalledGraph> branches = called_graphs(ir, op);
  const auto taken = handed_on(ir, written, branches[0], k), other = handed_on(ir, written, branches[1], k);
  if (!taken || !other) return kNone;
  const TensorId from = op.inputs[*taken], also = op.inputs[*other];
  return ir.tensor(from).memory.storage == ir.tensor(also).memory.storage ? from : TensorId(kNone);
}

}  // namespace

ContextId ContextSolver::solve_branch(const Op& op, const CalledGraph& branch, bool holds,
                                      NarrowingId narrowing) {
  const PartitionId exec = analysis_.narrowing(narrowing).exec;
  ContextEntry entry = entry_of(op, branch);
  for (PartitionId& input : entry.inputs) input = table_.meet(input, exec);
  for (PartitionId& each : entry.remote) each = table_.meet(each, exec);
  for (auto& [i, pieces] : entry.pieces) meet_all(table_, pieces, exec);
  const std::vector<InputUse>& uses = analysis_.uses_.of(branch.graph);
  const TensorId condition = ir_.tensor(op.inputs[0]).memory.storage;
  for (std::uint32_t i = branch.first; i < branch.end; ++i) {
    const bool same = ir_.tensor(op.inputs[i]).memory.storage == condition;
    if (same && uses[i - branch.first].decides) entry.truths.emplace(i - branch.first, holds);
  }
  return analysis_.solve(branch.graph, entry, narrowing);
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
    const TensorId storage = ir_.tensor(op.inputs[i]).memory.storage;
    write(storage, callee.end.inputs[i - branch.first]);
    const auto pieces = callee.end.input_pieces.find(i - branch.first);
    if (pieces != callee.end.input_pieces.end()) changes.pieces.emplace(storage, pieces->second);
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

/// Writes the changes of both branches; a branch that does not change a place contributes the fact before.
void ContextSolver::write_changes(const Changes& taken, const Changes& other, OpFacts& facts) {
  const auto merge = [this](const auto& changed, auto place, PartitionId last, PartitionId old) {
    const auto it = changed.find(place);
    return table_.meet(last, it == changed.end() ? old : it->second);
  };
  for (const auto& [storage, last] : taken.tensors) {
    const auto merged = std::ranges::find(facts.written, storage, &std::pair<TensorId, PartitionId>::first);
    if (merged != facts.written.end()) continue;
    PartitionId now = merge(other.tensors, storage, last, read(storage));
    bool renamed = false;
    for (const auto& [place, its_last] : other.tensors) {  // the same memory under another name
      if (place == storage || !overlaps(ir_, place, storage)) continue;
      now = table_.meet(now, its_last);
      renamed = true;
    }
    facts.written.emplace_back(storage, now);
    if (!renamed) merge_pieces(storage, taken, other, facts);
  }
  for (const auto& [stream, last] : taken.positions) {
    // Met already when the other side was merged first: meeting again changes nothing.
    position(stream) = merge(other.positions, stream, last, position(stream));
  }
}

/// True if a branch changes some of the memory under another name.
bool ContextSolver::is_renamed(TensorId storage, const Changes& changes) const {
  return std::ranges::any_of(changes.tensors, [&](const auto& each) {
    return each.first != storage && ir_.storage_index(each.first) != kNone &&
           overlaps(ir_, each.first, storage);
  });
}

void ContextSolver::merge_pieces(TensorId storage, const Changes& taken, const Changes& other,
                                 OpFacts& facts) {
  if (ir_.storage_index(storage) == kNone) return;
  const auto left_by = [&](const Changes& changes) -> Pieces {
    const auto last = changes.tensors.find(storage);
    if (last == changes.tensors.end()) return memory_.cover(storage);
    const auto pieces = changes.pieces.find(storage);
    if (pieces != changes.pieces.end()) return pieces->second;
    return {{whole_box(ir_.tensor(storage).type.shape), last->second}};
  };
  Pieces merged = meet(table_, left_by(taken), left_by(other));
  normalize(table_, merged);
  if (!merged.empty()) facts.pieces.emplace_back(storage, std::move(merged));
}

/// Writes the changes of the branch that all replicas take.
void ContextSolver::write_only_changes(const Changes& taken, OpFacts& facts) {
  for (const auto& [storage, last] : taken.tensors) facts.written.emplace_back(storage, last);
  for (const auto& [storage, pieces] : taken.pieces) facts.pieces.emplace_back(storage, pieces);
  for (const auto& [stream, last] : taken.positions) position(stream) = last;
}

/// The outputs hold values of both branches.
void ContextSolver::merge_outputs(const Op& op, const ContextEnd& taken, const ContextEnd& other,
                                  OpFacts& facts) {
  for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
    const TensorId copied = copied_by_both(ir_, analysis_.written_, op, k);
    if (copied != kNone && !has_pinned_facts_) {
      facts.outputs.push_back(read(copied));
      if (Pieces pieces = memory_.pieces(copied); !pieces.empty())
        facts.pieces.emplace_back(op.outputs[k], std::move(pieces));
      continue;
    }
    // Facts of a branch are finer than the condition.
    facts.outputs.push_back(table_.meet(taken.outputs[k], other.outputs[k]));
    if (!taken.output_pieces.contains(k) && !other.output_pieces.contains(k)) continue;
    const auto cover = [&](const ContextEnd& end) {
      const auto it = end.output_pieces.find(k);
      return it != end.output_pieces.end()
                 ? it->second
                 : Pieces{{whole_box(ir_.tensor(op.outputs[k]).type.shape), end.outputs[k]}};
    };
    Pieces merged = meet(table_, cover(taken), cover(other));
    normalize(table_, merged);
    if (!merged.empty()) facts.pieces.emplace_back(op.outputs[k], std::move(merged));
  }
}

/// True if one of the facts may rise.
bool ContextSolver::may_coarsen(const Op& op, const EqualResults& equal_results, const OpFacts& facts) const {
  if (!equal_results.is_known) return false;
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    if (equal_results.outputs[k] && facts.outputs[k] != context_.exec) return true;
  }
  const auto may_become = [&](const Written& each) {
    return each.second != context_.exec &&
           equal_results.has(each.first, ir_.storage_index(each.first) == kNone);
  };
  return std::ranges::any_of(facts.written, may_become) ||
         std::ranges::any_of(streams_, [&](StreamId id) { return equal_results.has_position(id); });
}

/// Sets a fact to a coarser one; false if it is not.
bool ContextSolver::coarsen(PartitionId& fact, PartitionId to) {
  if (fact == to || !table_.refines(fact, to)) return false;
  fact = to;
  return true;
}

void ContextSolver::write_equal_results(const Op& op, const CalledGraph& branch,
                                        const std::vector<PartitionId>& before, OpFacts& facts) {
  const EqualResults& equal_results = analysis_.numbers_.equal_results(op);
  if (!may_coarsen(op, equal_results, facts)) return;
  const std::vector<PartitionId> merged = std::exchange(remote_, before);  // as both branches found it
  const Context& alone =
      analysis_.context(analysis_.solve(branch.graph, entry_of(op, branch), context_.narrowing));
  const Changes changes = changes_of(op, branch, alone);
  const auto replace = [&facts](TensorId tensor, const Pieces& pieces) {
    std::erase_if(facts.pieces, [tensor](const auto& each) { return each.first == tensor; });
    if (!pieces.empty()) facts.pieces.emplace_back(tensor, pieces);
  };
  const auto find = [](const auto& all, auto key) {
    const auto it = all.find(key);
    return it == all.end() ? Pieces() : it->second;
  };
  for (std::uint32_t k = 0; k < op.outputs.size(); ++k) {
    if (equal_results.outputs[k] && coarsen(facts.outputs[k], alone.end.outputs[k]))
      replace(op.outputs[k], find(alone.end.output_pieces, k));
  }
  for (auto& [place, fact] : facts.written) {
    const bool entry = ir_.storage_index(place) == kNone;
    if (!equal_results.has(place, entry) || (!entry && is_renamed(place, changes))) continue;
    const auto changed = changes.tensors.find(place);
    const bool is_untouched = changed == changes.tensors.end();
    if (coarsen(fact, is_untouched ? read(place) : changed->second) && !entry)
      replace(place, is_untouched ? memory_.pieces(place) : find(changes.pieces, place));
  }
  remote_ = merged;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (!equal_results.has_position(streams_[i])) continue;
    const auto left = changes.positions.find(streams_[i]);
    const std::size_t at = entries_.size() + i;
    coarsen(remote_[at], left == changes.positions.end() ? before[at] : left->second);
  }
}

OpFacts ContextSolver::transfer_conditional(const Op& op) {
  const std::optional<bool> known = truth(op.inputs[0]);
  const PartitionId exec = table_.meet(context_.exec, read(op.inputs[0]));
  const NarrowingId narrowing =
      known ? context_.narrowing : analysis_.narrow(context_.narrowing, op.id, exec);
  const std::vector<CalledGraph> branches = called_graphs(ir_, op);
  OpFacts facts;
  facts.callee = solve_branch(op, branches[0], true, narrowing);
  facts.otherwise = solve_branch(op, branches[1], false, narrowing);
  const Context& taken = analysis_.context(facts.callee);
  const Context& other = analysis_.context(facts.otherwise);
  const Changes then_changes = changes_of(op, branches[0], taken);
  const Changes else_changes = changes_of(op, branches[1], other);
  if (known) {
    const bool holds = *known != has_fault(SolverFault::kOtherBranch);
    facts.taken = holds ? Taken::kThen : Taken::kElse;
    copy_outputs(op, (holds ? taken : other).end, facts);
    write_only_changes(holds ? then_changes : else_changes, facts);
  } else {
    merge_outputs(op, taken.end, other.end, facts);
    const std::vector<PartitionId> before = remote_;
    write_changes(then_changes, else_changes, facts);
    write_changes(else_changes, then_changes, facts);
    if (exec != context_.exec && !has_pinned_facts_) write_equal_results(op, branches[0], before, facts);
  }
  for (const auto& [storage, written] : facts.written) write(storage, written);
  return facts;
}

}  // namespace popsr
