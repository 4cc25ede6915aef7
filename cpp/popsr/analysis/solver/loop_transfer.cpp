// Transfer of a loop. The first iterations are followed one by one, so that the facts after the last one are
// its own; the body is compiled once, so that inside it only what holds in all iterations is claimed. Any
// iteration of a while_loop may be its last: after it, too, only what holds in all of them is claimed.
#include <algorithm>
#include <set>
#include <utility>

#include "popsr/analysis/solver/context_solver.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Number of iterations that are followed; fewer for a loop around loops, each of whose iterations follows
/// theirs.
std::size_t followed_iterations(std::uint32_t loops_inside) {
  static constexpr std::size_t kMost[] = {16, 8, 4, 2, 2};
  return loops_inside < std::size(kMost) ? kMost[loops_inside] : 1;
}

/// Compares the noise of a graph's ops in two contexts.
class SameSeeds {
 public:
  explicit SameSeeds(const PartitionAnalysis& analysis) : analysis_(analysis) {}

  bool operator()(ContextId a, ContextId b) {
    if (a == b || !seen_.emplace(a, b).second) return true;
    if (a == kNone || b == kNone) return false;
    const Context &one = analysis_.context(a), &other = analysis_.context(b);
    if (!std::ranges::equal(one.ops.seeds(), other.ops.seeds())) return false;
    for (const auto& [op, parts] : one.parts) {
      if (!std::ranges::equal(parts, other.parts.at(op), {}, &OpFacts::seeds, &OpFacts::seeds)) return false;
    }
    return std::ranges::all_of(one.ops.running_graphs(), [&](std::uint32_t op) {
      const FactView mine = one.ops[op], its = other.ops[op];
      return (*this)(mine.callee, its.callee) && (*this)(mine.otherwise, its.otherwise);
    });
  }

 private:
  const PartitionAnalysis& analysis_;
  std::set<std::pair<ContextId, ContextId>> seen_;
};

}  // namespace

ContextEntry ContextSolver::next_entry(const Op& op, const ContextEntry& entry, const Context& body) {
  ContextEntry next = entry;
  const std::vector<InputUse>& uses = analysis_.uses_.of(body.graph);
  const auto take = [&](std::uint32_t i, const TensorFacts& left) {
    next.inputs[i] = left.facts[i];
    next.pieces.erase(i);
    const auto pieces = left.pieces.find(i);
    if (uses[i].in_parts && pieces != left.pieces.end()) next.pieces.emplace(i, pieces->second);
  };
  const auto carried = static_cast<std::uint32_t>(op.outputs.size());
  for (std::uint32_t i = 0; i < carried; ++i) {
    const TensorId input = ir_.tensor(ir_.graph(body.graph).inputs[i]).memory.storage;
    if (!analysis_.pinned_fact(input)) take(i, {body.end.outputs, body.end.output_pieces});
  }
  for (const std::uint32_t i : op.call.modified) {
    if (i >= carried) take(i, {body.end.inputs, body.end.input_pieces});
  }
  next.remote = body.end.remote;
  return next;
}

void ContextSolver::meet_with_next(ContextEntry& entry, const ContextEntry& next, GraphId graph,
                                   bool& changed) const {
  changed |= meet_with(ir_, ir_.graph(graph).inputs, entry, {next.inputs, next.pieces});
  changed |= meet_with(table_, entry.remote, next.remote);
}

ContextId ContextSolver::fixpoint(const Op& op, GraphId body, ContextEntry entry) {
  ContextId id;
  bool changed = true;
  for (int pass = 0; changed; ++pass) {
    changed = false;
    id = analysis_.solve(body, entry, context_.narrowing);
    meet_with_next(entry, next_entry(op, entry, analysis_.context(id)), body, changed);
    if (pass > kMaxPassesByPart) entry.pieces.clear();
  }
  return id;
}

std::optional<ContextSolver::Iterations> ContextSolver::follow(const Op& op, GraphId body,
                                                               ContextEntry& entry) {
  const auto count = has_fault(SolverFault::kOneIteration)
                         ? std::size_t{1}
                         : static_cast<std::size_t>(counted_iterations(op).value());
  const std::size_t most = followed_iterations(analysis_.loops_.of(body));
  std::vector<ContextEntry> entries{entry};
  std::vector<ContextId> contexts;
  std::size_t last = 0;
  bool has_changed = false;
  while (true) {
    last = contexts.size();
    contexts.push_back(analysis_.solve(body, entries.back(), context_.narrowing));
    if (contexts.size() == count) break;
    ContextEntry next = next_entry(op, entries.back(), analysis_.context(contexts.back()));
    const auto back = static_cast<std::size_t>(std::ranges::find(entries, next) - entries.begin());
    if (back < entries.size()) {
      const std::size_t iterations = has_fault(SolverFault::kOddSwaps) ? count : count - 1;
      last = back + (iterations - back) % (entries.size() - back);
      break;
    }
    if (entries.size() == most) return std::nullopt;
    meet_with_next(entry, next, body, has_changed);
    entries.push_back(std::move(next));
  }
  const ContextId all = analysis_.solve(body, entry, context_.narrowing);
  // Ops draw the noise of all iterations in each of them.
  if (has_fault(SolverFault::kOwnNoise)) return Iterations{all, contexts[last]};
  SameSeeds same(analysis_);
  if (!std::ranges::all_of(contexts, [&](ContextId each) { return same(each, all); })) return std::nullopt;
  return Iterations{all, contexts[last]};
}

OpFacts ContextSolver::transfer_repeat(const Op& op) {
  OpFacts facts;
  const CalledGraph called = called_graphs(ir_, op)[0];
  const auto carried = static_cast<std::uint32_t>(op.outputs.size());
  if (counted_iterations(op) == 0) {
    for (std::uint32_t k = 0; k < carried; ++k) {
      facts.outputs.push_back(read(op.inputs[k]));
      if (Pieces pieces = memory_.pieces(op.inputs[k]); !pieces.empty())
        facts.pieces.emplace_back(op.outputs[k], std::move(pieces));
    }
    return facts;
  }
  ContextEntry entry = entry_of(op, called);
  std::erase_if(entry.truths, [&](const auto& known) {
    return known.first < carried || analysis_.written_.by_call(op, known.first);
  });
  const bool follows = !is_while_loop(op) || has_fault(SolverFault::kOneIteration);
  std::optional<Iterations> iterations = follows ? follow(op, called.graph, entry) : std::nullopt;
  if (!iterations) {
    const ContextId all = fixpoint(op, called.graph, entry);
    iterations = {all, all};
  }
  facts.callee = iterations->all;
  const Context& last = analysis_.context(iterations->last);
  set_remote_facts(last);
  copy_outputs(op, last.end, facts);
  std::vector<PartitionId> final_inputs = last.end.inputs;
  PiecesByInput final_pieces = last.end.input_pieces;
  for (std::uint32_t i = 0; i < carried; ++i) {
    final_inputs[i] = last.end.outputs[i];
    final_pieces.erase(i);
    const auto pieces = last.end.output_pieces.find(i);
    if (pieces != last.end.output_pieces.end()) final_pieces.emplace(i, pieces->second);
  }
  if (iterations->last != iterations->all) {
    for (const TensorId stored : analysis_.remote_.stored(called.graph))
      facts.written.emplace_back(stored, remote_fact(stored));
  }
  write_modified(op, {final_inputs, final_pieces}, facts);
  return facts;
}

}  // namespace popsr
