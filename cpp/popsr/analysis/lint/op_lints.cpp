// L5, L6, L9: seeds, collectives and rules, an op at a time.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "popsr/analysis/lint/lint_memory.h"
#include "popsr/analysis/memory/fact_replay.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/base/containers/recent.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Seeds that could differ, in the context where most could.
void lint_seeds(const PartitionAnalysis& facts, const Op& op, std::vector<Lint>& lints) {
  if (!facts.seed_rule(op)) return;
  PartitionTable& table = facts.ir().partitions();
  std::int64_t lost = 0, used = 0;
  for (const ContextId id : facts.contexts(op.graph)) {
    const FactView here = facts_of(facts.ir(), facts.context(id), op);
    PartitionId needed = table.bottom();
    for (std::size_t k = 0; k < here.outputs.size(); ++k) {
      if (rounds(facts.ir(), op, k)) needed = table.join(needed, here.outputs[k]);
    }
    const std::int64_t more = table.num_blocks(needed) - table.num_blocks(here.seeds);
    if (more > lost) std::tie(lost, used) = std::pair(more, table.num_blocks(here.seeds));
  }
  if (lost == 0) return;
  lints.push_back(
      {.code = 5,
       .op = op.id,
       .tensor = op.outputs[0],
       .location = op.origin.location,
       .cost = lost,
       .unit = "seeds",
       .text = fmt::format("{} rounds '{}' with {} seed{}, but {} could differ without breaking a proof: "
                           "errors of replicas do not average out; mode 'partition' chooses them so",
                           op.def->name, facts.ir().tensor(op.outputs[0]).name, used, used == 1 ? "" : "s",
                           used + lost)});
}

/// Number of times that each value occurs in its group when all occur equally often; else 1.
std::int64_t copies_in_groups(const ReplicaGrouping& group, const PartitionTable& table, PartitionId fact) {
  std::int64_t copies = 0;
  std::vector<std::uint32_t> labels;
  for (std::int64_t g = 0; g < group.num_groups(); ++g) {
    labels.clear();
    for (const Replica member : group.group(g)) labels.push_back(table.labels(fact)[member]);
    std::ranges::sort(labels);
    for (auto first = labels.begin(); first != labels.end();) {
      const auto end = std::ranges::upper_bound(first, labels.end(), *first);
      const std::int64_t count = end - first;
      if (copies == 0) copies = count;
      if (copies != count) return 1;
      first = end;
    }
  }
  return copies;
}

/// Groups of a collective, and the fact of its operand.
struct Exchange {
  std::uint64_t groups = 0;  ///< ReplicaGrouping::identity().
  PartitionId fact = {};
  bool operator==(const Exchange&) const = default;
  std::uint64_t hash() const { return (groups ^ std::uint64_t{fact.value} << 40) * kHashFactor; }
};

/// Copies that the members of groups hold, for exchanges that repeat: a program has few groups and facts.
class Copies {
 public:
  explicit Copies(const Ir& ir) : ir_(ir), all_(ReplicaGrouping::from_stride(ir.replication())) {}

  /// Groups of a collective. Valid as long as the op and this object are.
  const ReplicaGrouping& groups(const Op& op) const {
    const auto* const own = std::get_if<ReplicaGrouping>(&op.attribute(kGroup.name));
    return own == nullptr ? all_ : *own;
  }
  std::int64_t of(const ReplicaGrouping& groups, PartitionId fact) {
    const Exchange key{groups.identity(), fact};
    if (const std::int64_t* const known = known_.find(key)) return *known;
    known_.put(key, copies_in_groups(groups, ir_.partitions(), fact));
    return *known_.find(key);
  }

 private:
  const Ir& ir_;
  ReplicaGrouping all_;
  Recent<Exchange, std::int64_t> known_;
};

/// Number of times that each value of a collective's operand occurs in its group, in the context where it is
/// least.
std::int64_t copies_of(Dataflow& flow, const Op& op, Copies& copies) {
  const ReplicaGrouping& group = copies.groups(op);
  const TensorId storage = flow.storage_of(op.inputs[0]);
  const std::int32_t time = flow.time_before(op.graph, storage, op.schedule.position);
  std::int64_t least = group.group_size();
  for (const ContextId id : flow.facts().contexts(op.graph)) {
    const PartitionId fact = flow.fact(flow.facts().context(id), storage, time);
    least = std::min(least, copies.of(group, fact));
  }
  return least;
}

/// L6 of a collective of whose operand the members of a group of `size` hold each value so many times.
void lint_copies(const Ir& ir, const Op& op, std::int64_t size, std::int64_t copies,
                 std::vector<Lint>& lints) {
  const bool broadcasts = op.def->replicas.collective == Collective::kBroadcast;
  if (copies < 2 || (broadcasts && copies < size)) return;
  const std::string& tensor = ir.tensor(op.inputs[0]).name;
  const bool reduces = op.def->replicas.collective == Collective::kReduce;
  const auto reduction = reduces ? std::optional(op.get(kReduction)) : std::nullopt;
  const std::string_view how = reduction ? kReduction.name_of(*reduction) : "gather";
  Lint lint{.code = 6, .op = op.id, .tensor = op.inputs[0], .location = op.origin.location};
  if (reduction == CollectiveOp::kAdd || reduction == CollectiveOp::kMul) {
    lint.cost = copies;
    lint.unit = "times";
    lint.text = fmt::format(
        "{} '{}' over groups of {} takes each value of '{}' {} times: use 'mean', or groups in "
        "which they differ",
        op.def->name, how, size, tensor, copies);
    return lints.push_back(std::move(lint));
  }
  const std::int64_t distinct = size / copies, in_vain = broadcasts ? 1 : size - distinct;
  lint.cost = in_vain * static_cast<std::int64_t>(bytes_of(ir.tensor(op.inputs[0]).type));
  lint.unit = "bytes";
  lint.text = broadcasts
                  ? fmt::format("{} over groups of {} sends '{}' to replicas that hold it", op.def->name,
                                size, tensor)
                  : fmt::format("{} '{}' over groups of {} exchanges '{}', {} distinct value{} in a group",
                                op.def->name, how, size, tensor, distinct, distinct == 1 ? "" : "s");
  lint.text += fmt::format(": {} bytes for each replica in vain", lint.cost);
  lints.push_back(std::move(lint));
}

void lint_collective(Dataflow& flow, const Op& op, Copies& copies, std::vector<Lint>& lints) {
  if (op.def->replicas.collective == Collective::kNone) return;
  lint_copies(flow.ir(), op, copies.groups(op).group_size(), copies_of(flow, op, copies), lints);
}

/// L6 of a graph without views: one pass over it in each of its contexts.
void lint_collectives_of(Dataflow& flow, const Graph& graph, Copies& copies, std::vector<Lint>& lints) {
  const Ir& ir = flow.ir();
  const FlatSchedule& schedule = flow.facts().schedule(graph.id);
  std::vector<std::int64_t> least(schedule.size(), std::numeric_limits<std::int64_t>::max());
  for (const ContextId id : flow.facts().contexts(graph.id)) {
    const Context& context = flow.facts().context(id);
    MemoryFacts memory = flow.facts().entry_memory(context);
    for (std::size_t at = 0; at < schedule.size(); ++at) {
      const FlatOp& op = schedule[at];
      if (op.groups != kNone) {
        const PartitionId fact = memory.read(schedule.inputs(at)[0]);
        least[at] = std::min(least[at], copies.of(schedule.groups()[op.groups], fact));
      }
      replay(ir, context, schedule, at, memory);
    }
  }
  for (std::size_t at = 0; at < least.size(); ++at) {
    const FlatOp& flat = schedule[at];
    if (flat.merged && least[at] >= 2) {
      for (const OpId part : ir.op(flat.id).schedule.parts) lint_collective(flow, ir.op(part), copies, lints);
    } else if (flat.groups != kNone && least[at] >= 2) {
      lint_copies(ir, ir.op(flat.id), schedule.groups()[flat.groups].group_size(), least[at], lints);
    }
  }
}

void lint_collectives(Dataflow& flow, std::vector<Lint>& lints) {
  Copies copies(flow.ir());
  for (const GraphId id : ids<GraphId>(flow.ir().num_graphs())) {
    if (flow.facts().contexts(id).empty()) continue;
    const Graph& graph = flow.ir().graph(id);
    if (!graph.has_views) {
      lint_collectives_of(flow, graph, copies, lints);
    } else {
      for (const OpId op : single_ops(flow.ir(), id)) lint_collective(flow, flow.ir().op(op), copies, lints);
    }
  }
}

bool has_seeds(const PartitionAnalysis& facts) {
  for (const GraphId graph : ids<GraphId>(facts.ir().num_graphs())) {
    for (const ContextId id : facts.contexts(graph)) {
      if (facts.context(id).ops.has_seeds()) return true;
    }
  }
  return false;
}

void lint_rule(const Ir& ir, const Op& op, std::vector<Lint>& lints) {
  if (op.def->has_rule()) return;
  const std::vector<TensorId> outputs = all_outputs(ir, op);
  if (outputs.empty()) return;
  lints.push_back(
      {.code = 9,
       .op = op.id,
       .tensor = outputs[0],
       .location = op.origin.location,
       .cost = static_cast<std::int64_t>(outputs.size()),
       .unit = "values",
       .text = fmt::format("{} exchanges or stores values and declares no partition rule: its {} result{} "
                           "treated as equal nowhere",
                           op.def->name, outputs.size(), outputs.size() == 1 ? " is" : "s are")});
}

}  // namespace

void lint_ops(Explainer& explainer, std::vector<Lint>& lints) {
  Dataflow& flow = explainer.flow();
  if (flow.ir().may_have([](const OpDef& def) { return def.replicas.collective != Collective::kNone; }))
    lint_collectives(flow, lints);
  const bool seeds = has_seeds(flow.facts());
  const bool no_rules = flow.ir().may_have([](const OpDef& def) { return !def.has_rule(); });
  if (!seeds && !no_rules) return;
  for (const GraphId graph : ids<GraphId>(flow.ir().num_graphs())) {
    if (flow.facts().contexts(graph).empty()) continue;
    for (const OpId id : single_ops(flow.ir(), graph)) {
      if (seeds) lint_seeds(flow.facts(), flow.ir().op(id), lints);
      if (no_rules) lint_rule(flow.ir(), flow.ir().op(id), lints);
    }
  }
}

void lint_own(Explainer& explainer, const Op& op, std::vector<Lint>& lints) {
  Copies copies(explainer.flow().ir());
  lint_seeds(explainer.flow().facts(), op, lints);
  lint_collective(explainer.flow(), op, copies, lints);
  lint_rule(explainer.flow().ir(), op, lints);
}

}  // namespace popsr
