// Analysis of a program that grew since it was analysed: by ops, tensors, streams and graphs. Facts of the
// ops that were there stay what they were, because nothing that they depend on changed:
//   - ops of the main graph are appended after all others, and go on from the facts that these left;
//   - to graphs that are called already, ops are added that write, load and call nothing that was there: what
//     the graphs leave is the same;
//   - what runs hand on is the same fixpoint X = X0 & F(X). New ops give F' = F but where they write. If X
//     started as X0 there, and F' leaves it, X is a fixpoint of F' too; and it is the greatest: any other has
//     the same values there, so F leaves it as well.
// Everything else is analysed afresh; so are new calls where branches of conditionals were compared, as they
// were compared for the calls that there were.
#include <algorithm>
#include <set>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/analysis/solver/context_solver.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

bool moves_stream(const Ir& ir, const Op& op) { return loaded_stream(ir, op) || stored_stream(ir, op); }

/// True if the op has no effect on the facts that its graph leaves and on its demands on callers. Seeds of
/// an op may be the reason why a loop's iterations are not followed.
bool is_local(const PartitionAnalysis& facts, const Op& op) {
  return op.def->program.control == Control::kNone && op.def->program.remote == Remote::kNone &&
         op.def->memory.effects.empty() && op.def->memory.view == nullptr && op.schedule.parts.empty() &&
         !facts.seed_rule(op) && !moves_stream(facts.ir(), op);
}

}  // namespace

std::unique_ptr<PartitionAnalysis> PartitionAnalysis::grown(const PartitionAnalysis& before,
                                                            SeedRules seed_rules,
                                                            const GrowthChecks& checks) {
  const Ir& ir = before.ir();
  if (before.has_grown_) return nullptr;
  const std::size_t ops = before.counters_.ops;
  const bool same = ir.grew_from(before.epoch_, ops) && before.seed_rules_.agree(ir, seed_rules, ops);
  if (checks.changes && !same) return nullptr;
  if (ir.num_remotes() != before.counters_.remotes) return nullptr;
  const std::vector<OpId>& calls = ir.ops_with_graphs();
  if (before.numbers_.has_results() && !calls.empty() && calls.back().index() >= ops) return nullptr;
  std::unique_ptr<PartitionAnalysis> now(new PartitionAnalysis(before));
  now->seed_rules_ = std::move(seed_rules);
  now->numbers_.set_seed_rules(now->seed_rules_);
  const bool known = with_deep_stack([&] { return now->grow(before, checks); });
  return known ? std::move(now) : nullptr;
}

bool PartitionAnalysis::grow(const PartitionAnalysis& before, const GrowthChecks& checks) {
  before.has_grown_ = true;
  has_grown_ = false;
  memo_ = std::move(before.memo_);
  epoch_ = ir_->epoch();
  counters_ = ir_->counters();
  for (const StreamId id : ids<StreamId>(ir_->num_streams())) {
    if (id.index() >= rows_.size()) rows_.push_back(declared_rows(*ir_, id));
  }
  return add_to_called(before, checks) && add_to_main(before, checks);
}

/// Adds the new ops of graphs that were called before; false if more than their own ops have other facts
/// now.
bool PartitionAnalysis::add_to_called(const PartitionAnalysis& before, const GrowthChecks& checks) {
  const auto was_called = [&](GraphId graph) {
    return graph != kMainGraph && ir_->graph(graph).called() &&
           ir_->graph(graph).calls.first.index() < before.counters_.ops;
  };
  std::set<GraphId> grown;
  bool branches = false;
  for (std::size_t id = before.counters_.ops; id < counters_.ops; ++id) {
    const Op& op = ir_->op(OpId(id));
    branches = branches || op.def->program.control == Control::kConditional;
    if (!was_called(op.graph)) continue;
    if (checks.called && !is_local(*this, op)) return false;
    grown.insert(op.graph);
  }
  // Streams that branches load have positions from the start on.
  if (checks.streams && branches && StreamPositions(*ir_).of(kMainGraph) != streams_.of(kMainGraph))
    return false;
  for (std::size_t id = before.counters_.tensors; id < counters_.tensors; ++id) {
    const GraphId graph = ir_->tensor(TensorId(id)).graph;
    if (was_called(graph)) grown.insert(graph);
  }
  if (grown.empty()) return true;
  for (std::shared_ptr<const Context>& context : contexts_) {
    if (!grown.contains(context->graph)) continue;
    context = std::make_shared<const Context>(ContextSolver(*this, *context).run());
  }
  return true;
}

/// False if runs may hand on something else.
bool PartitionAnalysis::add_to_main(const PartitionAnalysis& before, const GrowthChecks& checks) {
  for (std::size_t id = before.counters_.tensors; id < counters_.tensors; ++id) {
    const Tensor& tensor = ir_->tensor(TensorId(id));
    if (tensor.kind != TensorKind::kVariable) continue;
    state_.push_back(tensor.id);
    variables_.push_back(start(tensor.id));
  }
  ContextSolver solver(*this, before.main());
  auto context = std::make_shared<const Context>(solver.run());
  if (checks.runs && !preserves_runs(*context, solver.rewritten())) return false;
  contexts_[main_] = std::move(context);
  const std::size_t first = before.main().ops.size();
  const std::span<const std::uint32_t> calls = main().ops.running_graphs();
  if (reachable_->size() == ir_->num_graphs() && (calls.empty() || calls.back() < first)) return true;
  reachable_ = std::make_shared<Reachable>(*reachable_);
  reachable_->resize(ir_->num_graphs());
  list_reachable(main_, first);
  return true;
}

/// True if the writes of the new ops do not change the fixpoint across runs.
bool PartitionAnalysis::preserves_runs(const Context& context,
                                       const std::vector<std::uint32_t>& rewritten) const {
  PartitionTable& table = ir_->partitions();
  for (const std::uint32_t i : rewritten) {
    if (context.pieces.contains(i) || context.end.input_pieces.contains(i)) return false;
    if (variables_[i] != start(state_[i]) || !table.refines(variables_[i], context.end.inputs[i]))
      return false;
  }
  if (entries_.empty() || context.ops.size() == main().ops.size()) return true;
  const std::vector<TensorId>& entries = remote_.of(kMainGraph);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries_[i] != start(entries[i]) || !table.refines(entries_[i], context.end.remote[i])) return false;
  }
  return true;
}

}  // namespace popsr
