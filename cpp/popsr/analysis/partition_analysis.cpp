#include "popsr/analysis/partition_analysis.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/solver/context_solver.h"
#include "popsr/base/containers/sorted.h"
#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/op_def.h"

namespace popsr {

namespace {

/// Variables and shards of the main graph, ascending.
std::vector<TensorId> state_of(const Ir& ir) {
  std::vector<TensorId> state;
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    const Tensor& tensor = ir.tensor(id);
    const bool variable = tensor.kind == TensorKind::kVariable && tensor.state.home == kNone;
    if (variable || tensor.kind == TensorKind::kShard) state.push_back(id);
  }
  return state;
}

}  // namespace

namespace {

/// key(r) = (group of r, its shard).
std::vector<std::uint64_t> shard_keys(const ReplicaGrouping& grouping, std::int64_t shards) {
  std::vector<std::uint64_t> keys;
  for (Replica r = 0; r < static_cast<Replica>(grouping.replicas()); ++r) {
    const auto group = static_cast<std::uint64_t>(grouping.assignment()[r]);
    keys.push_back(group << 32 | static_cast<std::uint64_t>(grouping.index_in_group(r) % shards));
  }
  return keys;
}

}  // namespace

PartitionId declared_fact(const Ir& ir, TensorId id) {
  PartitionTable& table = ir.partitions();
  const Tensor& tensor = ir.tensor(id);
  if (tensor.kind != TensorKind::kVariable && tensor.state.resident == kNone) return table.top();  // zeros
  const Tensor& variable = tensor.kind == TensorKind::kVariable ? tensor : ir.tensor(tensor.state.resident);
  if (variable.state.shard_over == 1) return variable.state.grouping->partition(table);
  const ReplicaGrouping& grouping = *variable.state.grouping;
  const RuleKey key{.rule = reinterpret_cast<std::uintptr_t>(&shard_keys),
                    .groups = grouping.identity(),
                    .parameter = variable.state.shard_over};
  return table.remember(key, grouping.keep_alive(),
                        [&] { return table.from_keys(shard_keys(grouping, variable.state.shard_over)); });
}

namespace {

std::vector<PartitionId> initial_facts(const PartitionAnalysis& analysis,
                                       const std::vector<TensorId>& tensors) {
  std::vector<PartitionId> facts;
  facts.reserve(tensors.size());
  for (const TensorId id : tensors) facts.push_back(analysis.start(id));
  return facts;
}

IdVector<StreamId, PartitionId> all_rows(const Ir& ir, const Assumptions& assumptions) {
  IdVector<StreamId, PartitionId> rows(ir.num_streams());
  for (const StreamId id : rows.ids()) {
    const auto assumed = assumptions.rows.find(id);
    rows[id] = assumed == assumptions.rows.end() ? declared_rows(ir, id) : assumed->second;
  }
  return rows;
}

}  // namespace

PartitionId declared_rows(const Ir& ir, StreamId id) {
  const Stream& stream = ir.stream(id);
  if (stream.groups) return stream.groups->partition(ir.partitions());
  return stream.mode == StreamMode::kReplicate ? ir.partitions().bottom() : ir.partitions().top();
}

PartitionId PartitionAnalysis::start(TensorId id) const {
  const auto assumed = assumptions_.start.find(id);
  return assumed == assumptions_.start.end() ? declared_fact(*ir_, id) : assumed->second;
}

std::optional<PartitionId> PartitionAnalysis::pinned_fact(TensorId storage) const {
  if (assumptions_.pinned.empty()) return std::nullopt;
  const auto it = assumptions_.pinned.find(storage);
  return it == assumptions_.pinned.end() ? std::nullopt : std::optional(it->second);
}

FactView facts_of(const Ir& ir, const Context& context, const Op& op) {
  if (op.schedule.part_of == kNone) return context.ops[op.schedule.position];
  const std::vector<OpId>& parts = ir.op(op.schedule.part_of).schedule.parts;
  const auto part = static_cast<std::size_t>(std::ranges::find(parts, op.id) - parts.begin());
  return context.parts.at(op.schedule.position)[part];
}

PartitionAnalysis::PartitionAnalysis(const Ir& ir, SeedRules seed_rules, Assumptions assumptions)
    : ir_(&ir),
      epoch_(ir.epoch()),
      seed_rules_(std::move(seed_rules)),
      counters_(ir.counters()),
      remote_(ir),
      streams_(ir),
      written_(ir),
      assumptions_(std::move(assumptions)),
      rows_(all_rows(ir, assumptions_)),
      state_(state_of(ir)),
      uses_(ir),
      loops_(ir),
      numbers_(ir, seed_rules_, assumptions_.fault) {
  with_deep_stack([this] {
    solve_runs();
    reachable_ = std::make_shared<Reachable>(ir_->num_graphs());
    list_reachable(main_, 0);
  });
}

void PartitionAnalysis::solve_runs() {
  PartitionTable& table = ir_->partitions();
  const std::vector<TensorId>& entries = remote_.of(kMainGraph);
  ContextEntry entry{.inputs = initial_facts(*this, state_)};
  for (const auto& [id, pieces] : assumptions_.start_pieces) {
    if (const auto at = find_sorted(state_, id))
      entry.pieces.emplace(static_cast<std::uint32_t>(*at), pieces);
  }
  entries_ = initial_facts(*this, entries);
  // Greatest fixpoint across runs: each pass can only split blocks, so it ends.
  bool changed = true;
  for (int pass = 0; changed; ++pass) {
    entry.remote = entries_;
    for (const StreamId stream : streams_.of(kMainGraph)) entry.remote.push_back(rows(stream));  // afresh
    Context context = ContextSolver(*this, kMainGraph, entry, kNoNarrowing).run();
    changed = meet_with(*ir_, state_, entry, {context.end.inputs, context.end.input_pieces});
    changed |= meet_with(table, entries_, context.end.remote);
    if (pass > kMaxPassesByPart) entry.pieces.clear();
    if (changed) continue;
    preserves_starts_ = pass == 0;
    variables_ = entry.inputs;
    main_ = contexts_.next();
    contexts_.push_back(std::make_shared<const Context>(std::move(context)));
  }
}

const std::vector<TensorId>& PartitionAnalysis::entry_tensors(GraphId graph) const {
  return graph == kMainGraph ? state_ : ir_->graph(graph).inputs;
}

void PartitionAnalysis::check_fresh() const {
  if (epoch_ != ir_->epoch()) {
    raise<GraphError>(
        "analyze: the program changed since these facts were computed, got {}; call analyze(ir) again",
        change());
  }
}

void PartitionAnalysis::check_fresh(const SeedRules& seed_rules) const {
  check_fresh();
  if (!seed_rules_.agree(*ir_, seed_rules, ir_->num_ops())) {
    raise<GraphError>(
        "analyze: the program changed since these facts were computed, got other seeds of stochastic "
        "rounding, expected those that the options chose then");
  }
}

std::string PartitionAnalysis::change() const {
  if (ir_->num_ops() > counters_.ops) {
    const Op& op = ir_->op(OpId(counters_.ops));
    return fmt::format(
        "{} at {}, which is newer", op.def->name,
        op.origin.location == kUnknownLocation ? "?" : ir_->locations().to_string(op.origin.location));
  }
  return fmt::format("version {}, expected {}", ir_->epoch(), epoch_);
}

ContextId PartitionAnalysis::solve(GraphId graph, const ContextEntry& entry, NarrowingId narrowing) {
  Key key{graph, narrowing, entry};
  if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
  Context context = ContextSolver(*this, graph, entry, narrowing).run();
  const ContextId id = contexts_.next();
  contexts_.push_back(std::make_shared<const Context>(std::move(context)));
  memo_.emplace(std::move(key), id);
  return id;
}

NarrowingId PartitionAnalysis::narrow(NarrowingId outer, OpId op, PartitionId exec) {
  if (exec == narrowings_[outer].exec) return outer;
  const Narrowing narrowing{op, outer, exec};
  const auto [it, fresh] = narrowing_ids_.emplace(narrowing, narrowings_.next());
  if (fresh) narrowings_.push_back(narrowing);
  return it->second;
}

OpId PartitionAnalysis::diverging_op(const Context& context, PartitionId groups) const {
  OpId op = kNone;
  for (NarrowingId at = context.narrowing; at != kNoNarrowing; at = narrowings_[at].outer) {
    if (ir_->partitions().refines(groups, narrowings_[at].exec)) break;
    op = narrowings_[at].op;
  }
  return op;
}

/// Adds the context, and those that its ops from `first_op` on lead to.
void PartitionAnalysis::list_reachable(ContextId id, std::size_t first_op) {
  const FactStore& ops = context(id).ops;
  std::vector<ContextId>& of_graph = (*reachable_)[context(id).graph];
  if (std::ranges::find(of_graph, id) == of_graph.end()) of_graph.push_back(id);
  const auto first = std::ranges::lower_bound(ops.running_graphs(), static_cast<std::uint32_t>(first_op));
  for (const std::uint32_t op : std::span(first, ops.running_graphs().end())) {
    for (const ContextId called : {ops[op].callee, ops[op].otherwise}) {
      if (called == kNone) continue;
      const std::vector<ContextId>& known = (*reachable_)[context(called).graph];
      if (std::ranges::find(known, called) == known.end()) list_reachable(called, 0);
    }
  }
}

const std::vector<ContextId>& PartitionAnalysis::contexts(GraphId graph) const {
  check_fresh();
  static const std::vector<ContextId> none;
  return graph.index() < reachable_->size() ? (*reachable_)[graph] : none;
}

const FlatSchedule& PartitionAnalysis::schedule(GraphId graph) const {
  check_fresh();
  return flat(*ir_).schedule(graph);
}

PartitionId PartitionAnalysis::variable(TensorId id) const {
  if (const auto at = find_sorted(state_, id)) return variables_[*at];
  if (const auto at = find_sorted(remote_.of(kMainGraph), id)) return entries_[*at];
  return ir_->partitions().top();
}

std::optional<PartitionId> PartitionAnalysis::remote_after(const FactView& facts, TensorId entry) const {
  if (facts.callee == kNone || facts.otherwise != kNone) return std::nullopt;  // conditionals: in `written`
  if (std::ranges::find(facts.written, entry, &Written::first) != facts.written.end()) return std::nullopt;
  const Context& callee = context(facts.callee);
  const auto at = find_sorted(remote_.of(callee.graph), entry);
  if (!at) return std::nullopt;
  return callee.end.remote[*at];
}

std::vector<std::pair<int, PartitionId>> PartitionAnalysis::values(TensorId id, ContextId context_id) const {
  check_fresh();
  if (ir_->tensor(id).state.home != kNone) id = ir_->tensor(id).state.home;
  const Tensor& tensor = ir_->tensor(id);
  const Context& context = this->context(context_id);
  const Graph& graph = ir_->graph(context.graph);
  POPSR_CHECK(tensor.graph == graph.id);
  const Tensor& storage_of = ir_->tensor(tensor.memory.storage);
  if (storage_of.memory.view || storage_of.memory.viewed != Viewed::kNo)
    return shared_values(tensor, context);
  std::vector<std::pair<int, PartitionId>> result;
  if (tensor.uses.producer == kNone) {
    const std::vector<TensorId>& entry = entry_tensors(graph.id);
    const auto it = std::ranges::find(entry, id);
    PartitionId initial = context.exec;
    if (tensor.kind == TensorKind::kRemote) initial = variable(id);
    if (it != entry.end()) initial = context.inputs[static_cast<std::size_t>(it - entry.begin())];
    result.emplace_back(-1, initial);
  }
  for (std::size_t at = 0; at < graph.ops.size(); ++at) {
    const Op& op = ir_->op(graph.ops[at]);
    if (tensor.uses.producer != kNone && at < ir_->op(tensor.uses.producer).schedule.position) continue;
    const std::vector<TensorId> outputs = all_outputs(*ir_, op);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (ir_->tensor(outputs[k]).memory.storage == tensor.memory.storage) {
        result.emplace_back(static_cast<int>(at), context.ops[at].outputs[k]);
      }
    }
    if (const auto inside = remote_after(context.ops[at], id)) {
      result.emplace_back(static_cast<int>(at), *inside);
    }
    for (const auto& [storage, fact] : context.ops[at].written) {
      if (storage == tensor.memory.storage) result.emplace_back(static_cast<int>(at), fact);
    }
  }
  return result;
}

MemoryFacts PartitionAnalysis::entry_memory(const Context& context) const {
  MemoryFacts memory(*ir_, context.graph, context.exec);
  const std::vector<TensorId>& entry = entry_tensors(context.graph);
  for (std::size_t i = 0; i < entry.size(); ++i) {
    memory.write(entry[i], ir_->partitions().meet(context.inputs[i], context.exec));
  }
  for (const auto& [i, pieces] : context.pieces) {
    Pieces here = pieces;
    meet_all(ir_->partitions(), here, context.exec);
    memory.write(entry[i], here);
  }
  return memory;
}

std::vector<std::pair<int, PartitionId>> PartitionAnalysis::shared_values(const Tensor& tensor,
                                                                          const Context& context) const {
  std::vector<std::pair<int, PartitionId>> result;
  MemoryFacts memory = entry_memory(context);
  const std::uint32_t made =
      tensor.uses.producer == kNone ? 0 : ir_->op(tensor.uses.producer).schedule.position;
  if (tensor.uses.producer == kNone) result.emplace_back(-1, memory.read(tensor.id));
  const std::vector<OpId>& ops = ir_->graph(context.graph).ops;
  for (std::uint32_t at = 0; at < ops.size(); ++at) {
    const Op& op = ir_->op(ops[at]);
    bool changed = tensor.uses.producer != kNone && at == made;
    const auto write = [&](TensorId written, PartitionId fact) {
      if (ir_->tensor(written).kind == TensorKind::kRemote) return;
      memory.write(written, fact);
      changed |= at >= made && overlaps(*ir_, written, tensor.id);
    };
    const FactView facts = context.ops[at];
    if (op.def->memory.view == nullptr) {
      const std::vector<TensorId> outputs = all_outputs(*ir_, op);
      for (std::size_t k = 0; k < outputs.size(); ++k) write(outputs[k], facts.outputs[k]);
    }
    for (const auto& [storage, fact] : facts.written) write(storage, fact);
    memory.write(facts.pieces);
    if (changed) result.emplace_back(static_cast<int>(at), memory.read(tensor.id));
  }
  return result;
}

PartitionId PartitionAnalysis::partition(TensorId id) const {
  check_fresh();
  if (ir_->tensor(id).state.home != kNone) id = ir_->tensor(id).state.home;
  const Tensor& tensor = ir_->tensor(id);
  if (tensor.kind == TensorKind::kRemote) {
    return main().end.remote[sorted_index(remote_.of(kMainGraph), id)];
  }
  PartitionId fact = ir_->partitions().top();
  for (const ContextId id_of_context : contexts(tensor.graph)) {
    fact = ir_->partitions().meet(fact, context(id_of_context).end.memory->read(tensor.memory.storage));
  }
  return fact;
}

PartitionId PartitionAnalysis::seeds(OpId id) const {
  check_fresh();
  const Op& op = ir_->op(id);
  PartitionId seeds = ir_->partitions().top();
  for (const ContextId each : contexts(op.graph)) {
    seeds = ir_->partitions().meet(seeds, facts_of(*ir_, context(each), op).seeds);
  }
  return seeds;
}

}  // namespace popsr
