#include "popsr/transform/whole_gradients.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "popsr/analysis/gradients/gradient_sums.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

Assumptions declared_variables(const Ir& ir) {
  Assumptions assumptions;
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    const TensorKind kind = ir.tensor(id).kind;
    if (kind == TensorKind::kVariable || kind == TensorKind::kShard)
      assumptions.pinned.emplace(id, declared_fact(ir, id));
  }
  return assumptions;
}

/// Grouping with these blocks; nullopt for blocks of several sizes.
std::optional<ReplicaGrouping> as_grouping(const PartitionTable& table, PartitionId blocks) {
  const auto labels = table.labels(blocks);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(table.num_blocks(blocks)));
  for (const std::uint32_t label : labels) ++sizes[label];
  if (std::ranges::any_of(sizes, [&](std::int64_t size) { return size != sizes[0]; })) return std::nullopt;
  return ReplicaGrouping::from_assignment(std::vector<std::int64_t>(labels.begin(), labels.end()));
}

/// The graph, and those that it calls.
void add_called(const Ir& ir, GraphId graph, std::set<GraphId>& graphs) {
  if (!graphs.insert(graph).second) return;
  for (const OpId id : ir.graph(graph).ops) {
    for (const CalledGraph& called : called_graphs(ir, ir.op(id))) add_called(ir, called.graph, graphs);
  }
}

/// A gradient graph sums for one sharing of its inputs. GraphError where calls disagree.
void check_contexts(const PartitionAnalysis& facts, GraphId graph) {
  const Ir& ir = facts.ir();
  const std::vector<ContextId>& contexts = facts.contexts(graph);
  for (std::size_t i = 0; graph != kMainGraph && i < ir.graph(graph).inputs.size(); ++i) {
    for (const ContextId id : contexts) {
      const PartitionId here = facts.context(id).inputs[i], first = facts.context(contexts[0]).inputs[i];
      if (here == first) continue;
      raise<GraphError>(
          "autodiff: replicas='sum' needs calls of {} that agree which replicas share an input, got {} and "
          "{} for '{}', expected a graph for each",
          in_words(ir.graph(graph)), ir.partitions().to_string(first), ir.partitions().to_string(here),
          ir.tensor(ir.graph(graph).inputs[i]).name);
    }
  }
}

bool reads_one_replica(const Op& op) {
  const ReplicaAspect& replicas = op.def->replicas;
  if (replicas.peers != Peers::kNone || replicas.collective != Collective::kNone) return false;
  return std::ranges::none_of(op.def->attrs, [](const AttrDef& attr) { return attr.name == kGroup.name; });
}

}  // namespace

WholeGradients::WholeGradients(const Ir& ir, GraphId graph) : ir_(ir) {
  const PartitionAnalysis facts(ir, SeedRules(), declared_variables(ir));
  if (graph != kMainGraph && facts.contexts(graph).empty()) {
    raise<GraphError>(
        "autodiff: replicas='sum' needs a call of the graph, which tells which replicas share its inputs, "
        "got {} that nothing calls, expected call_with_info before autodiff",
        in_words(ir.graph(graph)));
  }
  std::set<GraphId> graphs;
  add_called(ir, graph, graphs);
  for (const GraphId each : graphs) check_contexts(facts, each);
  for (const TensorId id : ids<TensorId>(ir.num_tensors())) partitions_.push_back(facts.partition(id));
}

void WholeGradients::check(const Op& op) const {
  const bool gathers = op.def->replicas.collective == Collective::kGather;
  if (op.def->program.control != Control::kNone || op.def->grad.of_whole != nullptr || gathers ||
      reads_one_replica(op))
    return;
  raise<GraphError>(
      "autodiff: {} has no transpose with replicas='sum', got '{}' made at {}, expected sums, means and "
      "all-gathers between replicas",
      op.def->name, ir_.tensor(op.outputs[0]).name, ir_.locations().to_string(op.origin.location));
}

GradientShare WholeGradients::contribution(const Op& op, TensorId called_input) const {
  PartitionTable& table = ir_.partitions();
  if (called_input != kNone) return starting_share(partition(called_input), 0);
  PartitionId outputs = table.top();
  for (const TensorId output : op.outputs) outputs = table.meet(outputs, partition(output));
  GradientShare share = starting_share(outputs, 0);
  if (op.def->replicas.collective == Collective::kNone) return share;
  const auto before = of_summed(table, share, group_of(ir_, op));
  if (!before) {
    raise<GraphError>("autodiff: {} at {} gives replicas of one group values that are not proved equal",
                      op.def->name, ir_.locations().to_string(op.origin.location));
  }
  share = *before;
  if (op.def->replicas.collective == Collective::kGather)
    share.equal = table.meet(share.equal, partition(op.inputs[0]));
  return share;
}

std::optional<PartSum> WholeGradients::sum_of(const GradientShare& share, TensorId forward) const {
  PartitionTable& table = ir_.partitions();
  const PartitionId whole = partition(forward);
  if (factor_over(table, share, whole) == Ratio{}) return std::nullopt;
  const auto sharing = as_grouping(table, whole);
  std::optional<PartSum> unordered;
  GradientShare parts = share;
  parts.whole = whole;
  for (const ReplicaGrouping& group : candidate_groups(ir_, parts)) {
    const auto sum = reduced(table, share, group, false);
    if (!sum || factor_over(table, *sum, whole) != Ratio{}) continue;
    if (adds_in_one_order(group, share.summed, whole)) return PartSum{group};
    if (!unordered && sharing) unordered = PartSum{group, sharing};
  }
  if (unordered) return unordered;
  raise<GraphError>(
      "autodiff: replicas='sum' finds no groups of equal size whose sum is the gradient of '{}', got parts "
      "on {}, expected one part from each replica of {}",
      ir_.tensor(forward).name, table.to_string(share.summed), table.to_string(whole));
}

/// True if the groups inside a block of `whole` have members of the same blocks of `parts` in the same order.
bool WholeGradients::adds_in_one_order(const ReplicaGrouping& group, PartitionId parts,
                                       PartitionId whole) const {
  const PartitionTable& table = ir_.partitions();
  std::map<std::uint32_t, std::vector<std::uint32_t>> orders;
  for (std::int64_t g = 0; g < group.num_groups(); ++g) {
    const std::span<const Replica> members = group.group(g);
    std::vector<std::uint32_t> order;
    for (const Replica member : members) order.push_back(table.labels(parts)[member]);
    const auto [it, fresh] = orders.emplace(table.labels(whole)[members[0]], order);
    if (!fresh && it->second != order) return false;
  }
  return true;
}

}  // namespace popsr
