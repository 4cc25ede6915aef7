#include "popsr/analysis/lint/lints.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "popsr/analysis/lint/lint_memory.h"
#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/stream_positions.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

const std::string& tensor_name(const Ir& ir, TensorId tensor) { return ir.tensor(tensor).name; }

/// Calls visit(op) for the ops of all graphs that the program reaches; for the parts of merged ones.
template <class Visit>
void for_each_reached_op(const PartitionAnalysis& facts, const Visit& visit) {
  for (const GraphId graph : ids<GraphId>(facts.ir().num_graphs())) {
    if (facts.contexts(graph).empty()) continue;
    for (const OpId op : single_ops(facts.ir(), graph)) visit(facts.ir().op(op));
  }
}

// L1, and L3 of streams

bool moves_stream(const Op& op) {
  return std::ranges::any_of(op.def->attrs,
                             [](const AttrDef& attr) { return attr.type == AttrType::kStream; });
}

/// Groups that must run an op together: a collective's groups, all replicas for a stream.
std::optional<ReplicaGrouping> exchange_groups(const Ir& ir, const Op& op) {
  return moves_stream(op) ? ReplicaGrouping::from_stride(ir.replication()) : collective_groups(ir, op);
}

/// L1 of an op in a context, if its groups may part there.
std::optional<Lint> parted_groups(const PartitionAnalysis& facts, const Context& context, const Op& op) {
  if (context.narrowing == kNoNarrowing) return std::nullopt;
  const Ir& ir = facts.ir();
  const auto group = exchange_groups(ir, op);
  if (!group) return std::nullopt;
  const OpId diverging = facts.diverging_op(context, group->partition(ir.partitions()));
  if (diverging == kNone) return std::nullopt;
  const ConditionSource asked = condition_source(ir, ir.op(diverging));
  const std::int64_t split = split_groups(*group, ir.partitions(), context.exec);
  const std::string cause =
      fmt::format("{} at {} parts them by its condition '{}', so that only {} certainly run it together",
                  asked.by->def->name, place_text(ir, asked.by->origin.location),
                  tensor_name(ir, asked.condition), blocks_text(ir.partitions(), context.exec));
  const std::string what =
      moves_stream(op)
          ? fmt::format("{} moves on in its stream, but {}: replicas that skip it stay behind the others",
                        op.def->name, cause)
          : fmt::format("{} needs all members of a group, but {}: {} of {} groups may not meet", op.def->name,
                        cause, split, group->num_groups());
  return Lint{.code = 1,
              .op = op.id,
              .tensor = op.outputs.empty() ? op.inputs[0] : op.outputs[0],
              .location = op.origin.location,
              .cost = split,
              .unit = "groups",
              .text = what + "; take it out of there, or make the condition equal inside its groups"};
}

/// The first two replicas of a group that a fact does not prove equal.
std::optional<std::pair<Replica, Replica>> unequal_pair(const ReplicaGrouping& groups,
                                                        std::span<const std::uint32_t> labels) {
  for (std::int64_t g = 0; g < groups.num_groups(); ++g) {
    const std::span<const Replica> members = groups.group(g);
    for (const Replica r : members) {
      if (labels[r] != labels[members[0]]) return std::pair(members[0], r);
    }
  }
  return std::nullopt;
}

/// L3 of an op in a context, if it stores values that may differ in a group of its stream.
std::optional<Lint> unequal_store(Dataflow& flow, const Context& context, const Op& op) {
  const Ir& ir = flow.ir();
  const Stream& stream = ir.stream(*stored_stream(ir, op));
  const TensorId storage = flow.storage_of(op.inputs[0]);
  const PartitionId fact =
      flow.fact(context, storage, flow.time_before(op.graph, storage, op.schedule.position));
  const auto pair = unequal_pair(*stream.groups, ir.partitions().labels(fact));
  if (!pair) return std::nullopt;
  const std::int64_t unseen = ir.replication() - stream.groups->num_groups();
  return Lint{
      .code = 3,
      .op = op.id,
      .tensor = op.inputs[0],
      .location = op.origin.location,
      .cost = unseen,
      .unit = "replicas",
      .text = fmt::format(
          "stream '{}' takes one value for each group, but replicas {} and {} of one group of '{}' are "
          "not proved equal; {} of {} replicas are not seen: reduce it over the groups, or give the "
          "stream other groups",
          stream.name, pair->first, pair->second, tensor_name(ir, op.inputs[0]), unseen, ir.replication())};
}

bool stores_groups(const Ir& ir, const Op& op) {
  const auto stream = stored_stream(ir, op);
  return stream && ir.stream(*stream).groups;
}

}  // namespace

std::int64_t split_groups(const ReplicaGrouping& group, const PartitionTable& table, PartitionId exec) {
  const auto labels = table.labels(exec);
  std::int64_t split = 0;
  for (std::int64_t g = 0; g < group.num_groups(); ++g) {
    const std::span<const Replica> members = group.group(g);
    const auto apart = [&](Replica r) { return labels[r] != labels[members[0]]; };
    split += std::ranges::any_of(members, apart) ? 1 : 0;
  }
  return split;
}

void lint_stores(Explainer& explainer, std::vector<Lint>& lints) {
  Dataflow& flow = explainer.flow();
  bool some = false;
  for (const StreamId id : ids<StreamId>(flow.ir().num_streams())) {
    some = some || (!flow.ir().stream(id).to_device && flow.ir().stream(id).groups);
  }
  if (!some) return;
  for_each_reached_op(flow.facts(), [&](const Op& op) {
    if (!stores_groups(flow.ir(), op)) return;
    for (const ContextId id : flow.facts().contexts(op.graph)) {
      auto lint = unequal_store(flow, flow.facts().context(id), op);
      if (!lint) continue;
      lints.push_back(*std::move(lint));
      break;
    }
  });
}

void lint_control(Explainer& explainer, std::vector<Lint>& lints) {
  const PartitionAnalysis& facts = explainer.flow().facts();
  if (facts.num_narrowings() == 1) return;  // no conditional parts replicas
  for_each_reached_op(facts, [&](const Op& op) {
    for (const ContextId id : facts.contexts(op.graph)) {
      auto lint = parted_groups(facts, facts.context(id), op);
      if (!lint) continue;
      lints.push_back(*std::move(lint));
      break;
    }
  });
}

// L4

namespace {

/// An op that runs a graph, and by which of its branches.
using CallSite = std::pair<OpId, std::uint32_t>;

/// The sites that lead to each context.
using Sites = std::map<ContextId, std::set<CallSite>>;

Sites sites_by_context(const PartitionAnalysis& facts) {
  Sites sites;
  for (const GraphId graph : ids<GraphId>(facts.ir().num_graphs())) {
    for (const ContextId id : facts.contexts(graph)) {
      const FactStore& ops = facts.context(id).ops;
      for (const std::uint32_t i : ops.running_graphs()) {
        const ContextId called[] = {ops[i].callee, ops[i].otherwise};
        for (std::uint32_t b = 0; b < 2; ++b) {
          if (called[b] != kNone) sites[called[b]].insert({facts.ir().graph(graph).ops[i], b});
        }
      }
    }
  }
  return sites;
}

/// Number of outputs of ops whose facts differ between contexts.
std::int64_t unequal_values(const PartitionAnalysis& facts, GraphId graph) {
  const std::vector<ContextId>& contexts = facts.contexts(graph);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < facts.ir().graph(graph).ops.size(); ++i) {
    const std::span<const PartitionId> first = facts.context(contexts[0]).ops[i].outputs;
    for (std::size_t k = 0; k < first.size(); ++k) {
      count += std::ranges::any_of(
          contexts, [&](ContextId id) { return facts.context(id).ops[i].outputs[k] != first[k]; });
    }
  }
  return count;
}

void lint_graph(const PartitionAnalysis& facts, GraphId graph, const Sites& sites, std::vector<Lint>& lints) {
  // One call in contexts of its own graph that differ: that graph's call sites disagree, not this one's.
  const std::vector<ContextId>& contexts = facts.contexts(graph);
  const std::set<CallSite>& ops = sites.at(contexts[0]);
  const auto other = std::ranges::find_if(contexts, [&](ContextId id) { return sites.at(id) != ops; });
  if (other == contexts.end()) return;
  const Ir& ir = facts.ir();
  const OpId a = ops.begin()->first;
  OpId b = sites.at(*other).begin()->first;
  for (const CallSite& site : sites.at(*other)) {
    if (!ops.contains(site)) b = site.first;
  }
  if (is_first_condition(ir, ir.op(a)) || is_first_condition(ir, ir.op(b)))
    return;  // the loop's other calls ask it, too
  const Context& here = facts.context(contexts[0]);
  const Context& there = facts.context(*other);
  Lint lint{.code = 4,
            .op = b,
            .location = ir.op(b).origin.location,
            .cost = unequal_values(facts, graph),
            .unit = "values"};
  if (lint.cost == 0) return;
  std::string what = "other memory or control";
  for (std::size_t i = 0; i < here.inputs.size(); ++i) {
    if (here.inputs[i] == there.inputs[i]) continue;
    lint.tensor = ir.graph(graph).inputs[i];
    what = fmt::format("'{}' {} against {}", tensor_name(ir, lint.tensor),
                       equal_inside(ir.partitions(), there.inputs[i]),
                       equal_inside(ir.partitions(), here.inputs[i]));
    break;
  }
  lint.text = fmt::format(
      "call sites of graph '{}' disagree: {} at {}; {} values of it have facts of their own for "
      "each of {} contexts",
      ir.graph(graph).name, what, place_text(ir, ir.op(a).origin.location), lint.cost,
      facts.contexts(graph).size());
  lints.push_back(std::move(lint));
}

}  // namespace

void lint_call_sites(Explainer& explainer, std::vector<Lint>& lints) {
  const PartitionAnalysis& facts = explainer.flow().facts();
  Sites sites;  // of a program with a graph in several contexts
  for (std::uint32_t g = 1; g < facts.ir().num_graphs(); ++g) {
    if (facts.contexts(GraphId{g}).size() < 2) continue;
    if (sites.empty()) sites = sites_by_context(facts);
    lint_graph(facts, GraphId{g}, sites, lints);
  }
}

void lint_op(Explainer& explainer, const Op& op, std::vector<Lint>& lints) {
  Dataflow& flow = explainer.flow();
  for (const ContextId id : flow.facts().contexts(op.graph)) {
    auto lint = parted_groups(flow.facts(), flow.facts().context(id), op);
    if (!lint) continue;
    lints.push_back(*std::move(lint));
    break;
  }
  lint_own(explainer, op, lints);
}

namespace {

std::shared_ptr<LintMemory> all_lints(Explainer& explainer, const OrderCheck* checked) {
  auto found = std::make_shared<LintMemory>();
  lint_control(explainer, found->lints);
  lint_stores(explainer, found->lints);
  lint_variables(explainer, found->lints);
  lint_call_sites(explainer, found->lints);
  lint_ops(explainer, found->lints);
  lint_updates(explainer, found->lints);
  lint_reads(explainer, found->lints);
  lint_gradients(explainer, found->lints);
  found->gradients = explainer.gradients().holders();
  const Ir& ir = explainer.flow().facts().ir();
  const auto* ordered = checked == nullptr ? nullptr : checked->ordered(ir);
  found->order = ordered == nullptr ? lint_order(explainer, found->lints) : *ordered;
  found->epoch = ir.epoch();
  found->ops = ir.num_ops();
  found->graphs = ir.num_graphs();
  return found;
}

}  // namespace

std::vector<Lint> find_lints(Explainer& explainer, const OrderCheck* checked) {
  const PartitionAnalysis& facts = explainer.flow().facts();
  facts.check_fresh();
  std::shared_ptr<const LintMemory>& memory = facts.lint_memory();
  with_deep_stack([&] {
    auto found = memory == nullptr ? nullptr : grown_lints(explainer, *memory);
    if (found == nullptr) found = all_lints(explainer, checked);
    std::ranges::stable_sort(found->lints, {},
                             [](const Lint& lint) { return std::pair(lint.code, lint.op); });
    memory = std::move(found);
  });
  return memory->lints;
}

}  // namespace popsr
