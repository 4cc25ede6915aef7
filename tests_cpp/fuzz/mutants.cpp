#include "fuzz/mutants.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "popsr/effects/remote_access.h"
#include "popsr/ir/view/view.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr::test {
namespace {

using Keys = std::vector<std::uint64_t>;

// Wrong rules

PartitionId bottom(const RuleContext& c, std::size_t) { return c.table.bottom(); }
PartitionId first_input(const RuleContext& c, std::size_t) { return c.inputs[0]; }
PartitionId second_input(const RuleContext& c, std::size_t) { return c.inputs[1]; }
PartitionId all_inputs_met(const RuleContext& c, std::size_t) {
  PartitionId fact = c.exec;
  for (const PartitionId input : c.inputs) fact = c.table.meet(fact, input);
  return fact;
}
PartitionId join_of_inputs(const RuleContext& c, std::size_t) {
  PartitionId fact = c.table.bottom();
  for (const PartitionId input : c.inputs) fact = c.table.join(fact, input);
  return fact;
}
PartitionId the_groups(const RuleContext& c, std::size_t) { return group_of(c.ir, c.op).partition(c.table); }

PartitionId the_index(const RuleContext& c, std::size_t) {
  const ReplicaGrouping group = group_of(c.ir, c.op);
  Keys keys;
  for (Replica r = 0; r < static_cast<Replica>(group.replicas()); ++r) {
    keys.push_back(static_cast<std::uint64_t>(group.index_in_group(r)));
  }
  return fact_of_keys(c, keys);
}

/// Members in any order: as if the reduction were exact.
PartitionId members_in_any_order(const RuleContext& c, std::size_t) {
  const auto labels = c.table.labels(c.inputs[0]);
  const ReplicaGrouping group = group_of(c.ir, c.op);
  std::vector<std::vector<std::uint32_t>> sets;
  Keys keys;
  for (Replica r = 0; r < labels.size(); ++r) {
    std::vector<std::uint32_t> set;
    for (const Replica s : group.members(r)) set.push_back(labels[s]);
    std::ranges::sort(set);
    const auto it = std::ranges::find(sets, set);
    keys.push_back(static_cast<std::uint64_t>(it - sets.begin()));
    if (it == sets.end()) sets.push_back(std::move(set));
  }
  return fact_of_keys(c, keys);
}

PartitionId own_or_first_member(const RuleContext& c, std::size_t) {
  const auto labels = c.table.labels(c.inputs[0]);
  Keys keys;
  for (Replica r = 0; r < labels.size(); ++r) {
    keys.push_back(labels[group_of(c.ir, c.op).members(r).front()]);
  }
  return fact_of_keys(c, keys);
}

PartitionId root_equals_the_others(const RuleContext& c, std::size_t) {
  const ReplicaGrouping group = group_of(c.ir, c.op);
  Keys keys = sequence_of_replicas(group, c.table.labels(c.inputs[0]));
  for (Replica r = 0; r < keys.size(); ++r) {
    if (group.index_in_group(r) != c.op.get(Attr<std::int64_t>{"root"})) keys[r] = 0;
  }
  return fact_of_keys(c, keys);
}

PartitionId zeros_are_unequal(const RuleContext& c, std::size_t) {
  const ReplicaGrouping group = group_of(c.ir, c.op);
  Keys keys = sequence_of_replicas(group, c.table.labels(c.inputs[0]));
  for (Replica r = 0; r < keys.size(); ++r) {
    if (group.index_in_group(r) != c.op.get(Attr<std::int64_t>{"root"})) keys[r] = 1000 + r;
  }
  return fact_of_keys(c, keys);
}

/// `empty`: the key where nothing arrives, from the replica.
template <class Empty>
PartitionId permuted(const RuleContext& c, bool inverse, const Empty& empty) {
  const auto labels = c.table.labels(c.inputs[0]);
  const auto& mapping = c.op.get(Attr<std::vector<std::int64_t>>{"mapping"});
  Keys keys(labels.size());
  for (Replica r = 0; r < labels.size(); ++r) keys[r] = empty(r);
  for (std::size_t s = 0; s < labels.size(); ++s) {
    if (mapping[s] < 0) continue;
    const auto to = static_cast<std::size_t>(mapping[s]);
    keys[inverse ? s : to] = 1 + labels[inverse ? to : s];
  }
  return fact_of_keys(c, keys);
}
PartitionId permuted_back(const RuleContext& c, std::size_t) {
  return permuted(c, true, [](Replica) { return 0; });
}
PartitionId nothing_arrives_unequally(const RuleContext& c, std::size_t) {
  return permuted(c, false, [](Replica r) { return 1000 + r; });
}
PartitionId nothing_is_the_first_block(const RuleContext& c, std::size_t) {
  return permuted(c, false, [](Replica) { return 1; });
}

PartitionId index_for_group(const RuleContext& c, std::size_t k) {
  return c.op.get(Attr<std::string>{"what"}) == "group" ? the_index(c, k) : the_groups(c, k);
}

StreamMode mode_of(const RuleContext& c) { return c.ir.stream(c.op.get(Attr<StreamId>{"h2d_stream"})).mode; }
PartitionId position_ignored(const RuleContext& c, std::size_t) {
  return mode_of(c) == StreamMode::kReplicate ? c.table.bottom() : c.exec;
}

/// Facts of what a remote op reads: t, the offset, then entries.
PartitionId remote(const RuleContext& c, bool value, bool offset, bool kept, std::size_t output) {
  PartitionId fact = c.exec;
  if (value) fact = c.table.meet(fact, c.inputs[0]);
  if (offset) fact = c.table.meet(fact, c.inputs[1]);
  if (kept) fact = c.table.meet(fact, c.inputs[2 + output]);
  return fact;
}
bool unknown(const RuleContext& c) { return !known_offset(c.ir, c.op); }
PartitionId always_overwritten(const RuleContext& c, std::size_t k) {
  return remote(c, true, unknown(c), false, k);
}
PartitionId never_overwritten(const RuleContext& c, std::size_t k) {
  return remote(c, true, unknown(c), true, k);
}
PartitionId any_offset(const RuleContext& c, std::size_t k) { return remote(c, true, false, unknown(c), k); }
PartitionId any_value(const RuleContext& c, std::size_t k) {
  return remote(c, false, unknown(c), unknown(c), k);
}
PartitionId entries_alone(const RuleContext& c, std::size_t) {
  PartitionId fact = c.exec;
  for (const PartitionId entry : c.inputs.subspan(1)) fact = c.table.meet(fact, entry);
  return fact;
}

// Changes

template <PartitionFn rule>
void put(OpDef& def) {
  def.replicas.partition = rule;
}
void no_effects(OpDef& def) { def.memory.effects.clear(); }
void no_peers(OpDef& def) { def.replicas.peers = Peers::kNone; }
template <std::size_t input, bool influences>
void set_influence(OpDef& def) {
  def.inputs[input].influences = influences;
}
/// A view of as many elements from the first one on.
std::vector<ViewPart> first_elements(const Ir& ir, const Op& op) {
  std::vector<ViewPart> parts = default_registry()->at(op.def->name).memory.view(ir, op);
  parts[0].ranges[0].start = 0;
  return parts;
}
void put_first(OpDef& def) { def.memory.view = first_elements; }
void not_looked_into(OpDef& def) {
  def.program.control = Control::kNone;
  def.replicas.partition = meet_of_inputs;
}

constexpr bool kQuick = true;

constexpr Mutant kMutants[] = {
    {"replicated_all_reduce", "members in any order", put<members_in_any_order>, kQuick},
    {"replicated_all_reduce", "what it was", put<first_input>},
    {"replicated_all_reduce", "equal everywhere", put<equal_everywhere>},
    {"replicated_all_reduce", "equal in groups alone", put<the_groups>},
    {"replicated_all_reduce", "equal nowhere", put<bottom>},
    {"replicated_all_reduce", "members receive parts", put<scatter_rule>},
    {"replicated_all_reduce", "exchanges with nobody", no_peers, kQuick},
    {"replicated_all_reduce_", "no effect", no_effects},
    {"replicated_all_reduce_", "what it was", put<first_input>},
    {"replicated_all_reduce_identical_inputs", "reduces", put<all_members_rule>},
    {"replicated_all_reduce_identical_grad_inputs", "does not reduce", put<meet_of_inputs>},
    {"replicated_identical_grad", "reduces", put<all_members_rule>},
    {"replicated_reduce_scatter", "index ignored", put<all_members_rule>, kQuick},
    {"replicated_reduce_scatter", "of the own value", put<own_part_rule>},
    {"replicated_reduce_scatter", "index alone", put<the_index>},
    {"replicated_reduce_scatter", "equal nowhere", put<bottom>},
    {"replicated_reduce_scatter", "exchanges with nobody", no_peers},
    {"replicated_all_gather", "what it was", put<first_input>},
    {"replicated_all_gather", "members receive parts", put<scatter_rule>},
    {"replicated_all_gather", "members in any order", put<members_in_any_order>},
    {"replicated_scan", "all members", put<all_members_rule>},
    {"replicated_scan", "of the own value", put<own_part_rule>},
    {"replicated_scan", "later members count", put<scatter_rule>},
    {"replicated_all_to_all", "index ignored", put<all_members_rule>},
    {"replicated_all_to_all", "of the own value", put<own_part_rule>},
    {"replicated_slice", "index ignored", put<meet_of_inputs>},
    {"replicated_slice", "of all members' values", put<scatter_rule>},
    {"replica_sharded_slice", "index ignored", put<meet_of_inputs>},
    {"replica_sharded_slice", "index alone", put<the_index>},
    {"replicated_gather_grad", "index ignored", put<meet_of_inputs>},
    {"replicated_broadcast", "from the first member", put<own_or_first_member>, kQuick},
    {"replicated_broadcast", "what it was", put<first_input>},
    {"replicated_broadcast", "of all members' values", put<all_members_rule>},
    {"replicated_broadcast", "equal in groups alone", put<the_groups>},
    {"replicated_broadcast", "exchanges with nobody", no_peers},
    {"replicated_broadcast_grad", "all receive the sum", put<all_members_rule>},
    {"replicated_broadcast_grad", "one sum is zero", put<root_equals_the_others>},
    {"replicated_broadcast_grad", "zeros are unequal", put<zeros_are_unequal>},
    {"replicated_permute", "nothing is the first block", put<nothing_is_the_first_block>, kQuick},
    {"replicated_permute", "nothing arrives unequally", put<nothing_arrives_unequally>},
    {"replicated_permute", "sent back", put<permuted_back>},
    {"replicated_permute", "what it was", put<first_input>},
    {"replicated_permute", "exchanges with nobody", no_peers},
    {"replica_index", "index for group", put<index_for_group>},
    {"replica_index", "equal everywhere", put<equal_everywhere>},
    {"replica_index", "equal nowhere", put<bottom>},
    {"host_load", "position ignored", put<position_ignored>, kQuick},
    {"host_load", "equal everywhere", put<equal_everywhere>},
    {"host_load", "equal nowhere", put<bottom>},
    {"init", "equal everywhere", put<equal_everywhere>},
    {"init", "equal nowhere", put<bottom>},
    {"add", "of the first input", put<first_input>},
    {"add", "join", put<join_of_inputs>},
    {"add", "second input without influence", set_influence<1, false>},
    {"relu", "equal everywhere", put<equal_everywhere>},
    {"mul", "equal nowhere", put<bottom>},
    {"all_reduce", "of the first input", put<first_input>},
    {"add_", "no effect", no_effects},
    {"copy_var_update_", "no effect", no_effects, kQuick},
    {"copy_var_update_", "old value read", set_influence<0, true>},
    {"copy_var_update_", "source unread", set_influence<1, false>},
    {"accumulate_", "factor 0 counts", put<meet_of_inputs>},
    {"accumulate_", "source unread", put<first_input>},
    {"accumulate_", "of the source", put<second_input>},
    {"accumulator_scale_", "factor 0 counts", put<meet_of_inputs>},
    {"accumulator_scale_", "always zero", put<equal_everywhere>},
    {"accumulator_zero_", "old value read", put<all_inputs_met>},
    {"accumulator_zero_", "no effect", no_effects},
    {"remote_load", "offset ignored", put<entries_alone>, kQuick},
    {"remote_load", "entries ignored", put<first_input>},
    {"remote_load", "reaches no memory", [](OpDef& def) { def.program.remote = Remote::kNone; }},
    {"remote_load_", "old value read", set_influence<0, true>},
    {"remote_load_", "no effect", no_effects},
    {"remote_store", "always overwritten", put<always_overwritten>, kQuick},
    {"remote_store", "never overwritten", put<never_overwritten>},
    {"remote_store", "offset ignored", put<any_offset>},
    {"remote_store", "value ignored", put<any_value>},
    {"remote_store", "stores nothing", [](OpDef& def) { def.program.remote = Remote::kLoads; }},
    {"repeat", "one pass", [](OpDef& def) { def.program.control = Control::kCall; }, kQuick},
    {"repeat", "not looked into", not_looked_into},
    {"while_loop", "one pass", [](OpDef& def) { def.program.control = Control::kCall; }},
    {"while_loop", "not looked into", not_looked_into},
    {"call", "not looked into", not_looked_into},
    {"conditional", "not looked into", not_looked_into},
    {"slice_", "shows the first elements", put_first},
    {.op = "call", .what = "facts at other parts", .fault = SolverFault::kPartsMoved},
    {.op = "repeat", .what = "one iteration", .fault = SolverFault::kOneIteration},
    {.op = "while_loop", .what = "one iteration", .fault = SolverFault::kOneIteration},
    {.op = "repeat", .what = "one swap off", .fault = SolverFault::kOddSwaps},
    {.op = "repeat", .what = "noise of one iteration", .fault = SolverFault::kOwnNoise},
    {.op = "conditional", .what = "known, the other branch", .fault = SolverFault::kOtherBranch},
    {.op = "conditional", .what = "known when written", .fault = SolverFault::kStaleCondition},
    {.op = "conditional", .what = "memory alike", .fault = SolverFault::kSameMemory},
    {.op = "conditional", .what = "attributes alike", .fault = SolverFault::kSameAttributes},
    {.op = "conditional", .what = "noise alike", .fault = SolverFault::kSameNoise},
};

}  // namespace

std::span<const Mutant> mutants() { return kMutants; }

std::shared_ptr<const Registry> mutated(const Mutant& mutant) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at(mutant.op);
  if (mutant.change != nullptr) mutant.change(def);
  registry->replace(std::move(def));
  return registry;
}

}  // namespace popsr::test
