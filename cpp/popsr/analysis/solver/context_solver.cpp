#include "popsr/analysis/solver/context_solver.h"

#include <algorithm>

#include "popsr/base/containers/sorted.h"
#include "popsr/base/error.h"
#include "popsr/ir/flat/fetch_ahead.h"
#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

Context at_entry(const PartitionAnalysis& analysis, GraphId graph, const ContextEntry& entry,
                 NarrowingId narrowing) {
  Context context;
  context.graph = graph;
  context.inputs = entry.inputs;
  context.pieces = entry.pieces;
  context.truths = entry.truths;
  context.exec = analysis.narrowing(narrowing).exec;
  context.narrowing = narrowing;
  POPSR_CHECK(analysis.entry_tensors(graph).size() == entry.inputs.size());
  return context;
}

/// Prefetches ops whose rules ask for more than the schedule has, a number of such ops ahead: there may be
/// many others between them, which take no time.
class OpFetcher {
 public:
  OpFetcher(const Ir& ir, const FlatSchedule& schedule, std::size_t first) : ir_(ir), schedule_(schedule) {
    op_ = lists_ = next(first);
    for (std::size_t i = 0; i < kOpsAhead; ++i) fetch_next_op();
    for (std::size_t i = 0; i < kListsAhead; ++i) fetch_next_lists();
  }

  /// Called before each such op.
  void advance() {
    fetch_next_op();
    fetch_next_lists();
  }

 private:
  /// Position of the first such op from that one on.
  std::size_t next(std::size_t at) const {
    while (at < schedule_.size() && schedule_[at].meets) ++at;
    return at;
  }
  void fetch_next_op() {
    if (op_ >= schedule_.size()) return;
    fetch_object(ir_.op(schedule_[op_].id));
    op_ = next(op_ + 1);
  }
  void fetch_next_lists() {
    if (lists_ >= schedule_.size()) return;
    fetch_lists(ir_.op(schedule_[lists_].id));
    lists_ = next(lists_ + 1);
  }

  const Ir& ir_;
  const FlatSchedule& schedule_;
  std::size_t op_ = 0, lists_ = 0;  ///< Positions whose op, and whose lists, are fetched next.
};

}  // namespace

ContextSolver::ContextSolver(PartitionAnalysis& analysis, GraphId graph, const ContextEntry& entry,
                             NarrowingId narrowing)
    : analysis_(analysis),
      ir_(analysis.ir()),
      table_(ir_.partitions()),
      has_pinned_facts_(!analysis.assumptions().pinned.empty()),
      context_(at_entry(analysis, graph, entry, narrowing)),
      entries_(analysis.remote_.of(graph)),
      streams_(analysis.streams_.of(graph)),
      remote_(entry.remote),
      // Constants are equal wherever they are read; op outputs are set before they are read.
      memory_(analysis.entry_memory(context_)) {
  POPSR_CHECK(remote_.size() == entries_.size() + streams_.size());
  for (PartitionId& fact : remote_) fact = table_.meet(fact, context_.exec);
  context_.remote = remote_;
  for (const auto& [i, truth] : context_.truths) truths_.emplace(ir_.graph(graph).inputs[i], truth);
}

ContextSolver::ContextSolver(PartitionAnalysis& analysis, const Context& before)
    : analysis_(analysis),
      ir_(analysis.ir()),
      table_(ir_.partitions()),
      has_pinned_facts_(!analysis.assumptions().pinned.empty()),
      context_(before),
      entries_(analysis.remote_.of(before.graph)),
      streams_(analysis.streams_.of(before.graph)),
      remote_(before.end.remote),
      memory_(*before.end.memory),
      grows_(true) {
  memory_.grow(context_.exec);
  const std::vector<TensorId>& entry = analysis.entry_tensors(before.graph);
  for (std::size_t i = context_.inputs.size(); i < entry.size(); ++i) {  // new state of the main graph
    context_.inputs.push_back(analysis.start(entry[i]));
    context_.end.inputs.push_back(table_.meet(context_.inputs.back(), context_.exec));
    memory_.write(entry[i], context_.end.inputs.back());
  }
}

PartitionId ContextSolver::read(TensorId tensor) {
  const std::uint32_t slot = ir_.storage_index(tensor);
  return slot == kNone ? remote_fact(tensor) : memory_.read(tensor, slot);
}

void ContextSolver::write(TensorId tensor, PartitionId fact) {
  if (grows_) written_.push_back(tensor);
  if (!truths_.empty() && !has_fault(SolverFault::kStaleCondition))
    for_each_root(ir_, tensor, [this](TensorId root) { truths_.erase(root); });
  if (has_pinned_facts_) {
    const auto pinned = analysis_.pinned_fact(ir_.tensor(tensor).memory.storage);
    if (pinned) fact = table_.meet(*pinned, context_.exec);
  }
  const std::uint32_t slot = ir_.storage_index(tensor);
  if (slot == kNone) {
    remote_fact(tensor) = fact;
  } else {
    memory_.write(tensor, slot, fact);
  }
}

std::optional<bool> ContextSolver::truth(TensorId condition) const {
  const auto it = truths_.find(ir_.tensor(condition).memory.storage);
  return it == truths_.end() ? std::nullopt : std::optional(it->second);
}

PartitionId& ContextSolver::remote_fact(TensorId entry) { return remote_[sorted_index(entries_, entry)]; }

PartitionId& ContextSolver::position(StreamId stream) {
  return remote_[entries_.size() + sorted_index(streams_, stream)];
}

std::vector<PartitionId> ContextSolver::remote_facts(GraphId graph) {
  std::vector<PartitionId> facts;
  for (const TensorId entry : analysis_.remote_.of(graph)) facts.push_back(remote_fact(entry));
  for (const StreamId stream : analysis_.streams_.of(graph)) facts.push_back(position(stream));
  return facts;
}

void ContextSolver::set_remote_facts(const Context& callee) {
  const std::vector<TensorId>& entries = analysis_.remote_.of(callee.graph);
  for (std::size_t i = 0; i < entries.size(); ++i) remote_fact(entries[i]) = callee.end.remote[i];
  const std::vector<StreamId>& streams = analysis_.streams_.of(callee.graph);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    position(streams[i]) = callee.end.remote[entries.size() + i];
  }
}

ContextEntry ContextSolver::entry_of(const Op& op, const CalledGraph& called) {
  ContextEntry entry{.remote = remote_facts(called.graph)};
  const std::vector<InputUse>& uses = analysis_.uses_.of(called.graph);
  for (std::uint32_t i = called.first; i < called.end; ++i) {
    const TensorId input = op.inputs[i];
    const std::uint32_t at = i - called.first;
    entry.inputs.push_back(input == kNone ? table_.top() : read(input));
    if (input == kNone || ir_.storage_index(input) == kNone) continue;
    if (uses[at].in_parts) {
      if (Pieces pieces = memory_.pieces(input); !pieces.empty()) entry.pieces.emplace(at, std::move(pieces));
    }
    if (!uses[at].decides || truths_.empty()) continue;
    if (const auto known = truth(input)) entry.truths.emplace(at, *known);
  }
  return entry;
}

void ContextSolver::read_inputs(const Op& op, std::vector<PartitionId>& facts) {
  facts.clear();
  const auto add = [&](const std::vector<TensorId>& inputs) {
    for (const TensorId input : inputs) facts.push_back(input == kNone ? table_.top() : read(input));
  };
  if (op.def->program.remote == Remote::kNone && op.schedule.parts.empty()) {
    add(op.inputs);
  } else {
    add(all_inputs(ir_, op));
  }
  const std::optional<StreamId> stream = loaded_stream(ir_, op);
  if (!stream) return;
  const bool parts = std::ranges::binary_search(streams_, *stream);
  facts.push_back(parts ? position(*stream) : analysis_.rows(*stream));
}

Context ContextSolver::run() {
  const Graph& graph = ir_.graph(context_.graph);
  if (!grows_) context_.ops.reserve(graph.ops.size());
  const FlatSchedule& schedule = flat(ir_).schedule(graph.id);
  OpFetcher fetcher(ir_, schedule, context_.ops.size());
  for (std::size_t at = context_.ops.size(); at < schedule.size(); ++at) {
    if (schedule[at].meets) {
      step_meet(schedule, at);
    } else {
      fetcher.advance();
      step(ir_.op(schedule[at].id));
    }
  }
  find_ends(graph);
  context_.end.memory = std::make_shared<const MemoryFacts>(std::move(memory_));
  context_.end.remote = std::move(remote_);
  return std::move(context_);
}

/// Facts of a tensor, and of its parts where they have their own.
PartitionId ContextSolver::last(TensorId tensor, std::uint32_t index, PiecesByInput& parts) {
  if (ir_.storage_index(tensor) != kNone) {
    Pieces pieces = memory_.pieces(tensor);
    if (!pieces.empty()) {
      if (has_fault(SolverFault::kPartsMoved)) std::swap(pieces.front().fact, pieces.back().fact);
      parts.insert_or_assign(index, std::move(pieces));
    }
  }
  return read(tensor);
}

void ContextSolver::find_ends(const Graph& graph) {
  ContextEnd& end = context_.end;
  end.outputs.clear();
  end.output_pieces.clear();
  for (std::uint32_t i = 0; i < graph.outputs.size(); ++i) {
    end.outputs.push_back(last(graph.outputs[i], i, end.output_pieces));
  }
  const std::vector<TensorId>& entry = analysis_.entry_tensors(graph.id);
  if (!grows_) {
    for (std::uint32_t i = 0; i < entry.size(); ++i)
      end.inputs.push_back(last(entry[i], i, end.input_pieces));
    return;
  }
  for (const TensorId written : written_) {
    for_each_root(ir_, written, [&](TensorId root) {
      if (const auto i = find_sorted(entry, root)) rewritten_.push_back(static_cast<std::uint32_t>(*i));
    });
  }
  std::ranges::sort(rewritten_);
  rewritten_.erase(std::ranges::unique(rewritten_).begin(), rewritten_.end());
  for (const std::uint32_t i : rewritten_) {
    end.input_pieces.erase(i);
    end.inputs[i] = last(entry[i], i, end.input_pieces);
  }
}

/// Facts of the outputs of an op with FlatOp::meets, by the rule of meet_of_inputs.
void ContextSolver::step_meet(const FlatSchedule& schedule, std::size_t at) {
  PartitionId fact = context_.exec;
  for (const TensorId input : schedule.inputs(at)) {
    if (input != kNone) fact = table_.meet(fact, read(input));
  }
  const std::span<const TensorId> outputs = schedule.outputs(at);
  outputs_.assign(outputs.size(), fact);
  for (const TensorId output : outputs) write(output, fact);
  context_.ops.add(outputs_, std::nullopt);
}

void ContextSolver::step(const Op& op) {
  if (op.def->program.control != Control::kNone) {
    OpFacts facts = transfer(op);
    for (std::size_t k = 0; k < op.outputs.size(); ++k) write(op.outputs[k], facts.outputs[k]);
    if (has_pinned_facts_)
      std::erase_if(facts.pieces, [this](const auto& each) { return analysis_.pinned_fact(each.first); });
    memory_.write(facts.pieces);
    return context_.ops.add(std::move(facts));
  }
  if (op.def->memory.view) {  // writes nothing
    outputs_ = {read(op.outputs[0])};
    return context_.ops.add(outputs_, std::nullopt);
  }
  if (!op.schedule.parts.empty()) {
    const std::vector<PartitionId> outputs = transfer_parts(op);
    write(all_outputs(ir_, op), outputs);
    return context_.ops.add(outputs, std::nullopt);
  }
  const std::optional<PartitionId> seeds = transfer_local(op);
  if (op.def->program.remote == Remote::kNone) {
    write(op.outputs, outputs_);
  } else {
    write(all_outputs(ir_, op), outputs_);
  }
  context_.ops.add(outputs_, seeds);
}

void ContextSolver::write(const std::vector<TensorId>& tensors, const std::vector<PartitionId>& facts) {
  for (std::size_t k = 0; k < tensors.size(); ++k) write(tensors[k], facts[k]);
}

OpFacts ContextSolver::transfer(const Op& op) {
  switch (op.def->program.control) {
    case Control::kCall:
      return transfer_call(op);
    case Control::kRepeat:
      return transfer_repeat(op);
    default:
      return transfer_conditional(op);
  }
}

std::optional<PartitionId> ContextSolver::transfer_local(const Op& op) {
  read_inputs(op, inputs_);
  const RuleContext rule{table_, ir_, op, inputs_, context_.exec};
  const std::size_t outputs =
      op.def->program.remote == Remote::kNone ? op.outputs.size() : all_outputs(ir_, op).size();
  outputs_.clear();
  for (std::size_t k = 0; k < outputs; ++k) {
    const PartitionId output = op.def->has_rule() ? op.def->replicas.partition(rule, k) : table_.bottom();
    outputs_.push_back(table_.meet(output, context_.exec));
  }
  const std::optional<SeedRule> seed_rule = analysis_.seed_rule(op);
  if (!seed_rule) return std::nullopt;
  // The join breaks no proof: rounding is a function of (inputs, seed block), and outputs already agree
  // inside it.
  PartitionId seeds = *seed_rule == SeedRule::kIdentical ? table_.top() : table_.bottom();
  if (*seed_rule == SeedRule::kPartition) {
    for (std::size_t k = 0; k < outputs; ++k) {
      if (rounds(ir_, op, k)) seeds = table_.join(seeds, outputs_[k]);
    }
  }
  for (std::size_t k = 0; k < outputs; ++k) {
    if (!rounds(ir_, op, k)) continue;
    const PartitionId deterministic = outputs_[k];
    PartitionId& output = outputs_[k];
    output = table_.meet(output, seeds);
    POPSR_CHECK(*seed_rule != SeedRule::kPartition || output == deterministic);
  }
  return seeds;
}

/// Computes the parts of a merged op, each with its own rule and seeds: a fact that gets finer for one
/// tensor stays as it is for the others.
std::vector<PartitionId> ContextSolver::transfer_parts(const Op& op) {
  std::vector<PartitionId> outputs;
  std::vector<OpFacts>& parts = context_.parts[op.schedule.position];
  for (const OpId id : op.schedule.parts) {
    const std::optional<PartitionId> seeds = transfer_local(ir_.op(id));
    parts.push_back({.outputs = outputs_, .seeds = seeds.value_or(table_.top())});
    outputs.insert(outputs.end(), outputs_.begin(), outputs_.end());
  }
  return outputs;
}

void ContextSolver::write_modified(const Op& op, const TensorFacts& last, OpFacts& facts) {
  for (const std::uint32_t i : op.call.modified) {
    if (!analysis_.written_.by_call(op, i)) continue;
    const TensorId storage = ir_.tensor(op.inputs[i]).memory.storage;
    const auto it = std::ranges::find(facts.written, storage, &Written::first);
    if (it != facts.written.end()) {
      it->second = table_.meet(it->second, last.facts[i]);
      std::erase_if(facts.pieces, [storage](const auto& each) { return each.first == storage; });
      continue;
    }
    facts.written.emplace_back(storage, last.facts[i]);
    if (const auto pieces = last.pieces.find(i); pieces != last.pieces.end())
      facts.pieces.emplace_back(storage, pieces->second);
  }
  for (const auto& [storage, written] : facts.written) write(storage, written);
}

void ContextSolver::copy_outputs(const Op& op, const ContextEnd& end, OpFacts& facts) {
  facts.outputs = end.outputs;
  for (const auto& [k, pieces] : end.output_pieces) facts.pieces.emplace_back(op.outputs[k], pieces);
}

OpFacts ContextSolver::transfer_call(const Op& op) {
  OpFacts facts;
  const CalledGraph called = called_graphs(ir_, op)[0];
  facts.callee = analysis_.solve(called.graph, entry_of(op, called), context_.narrowing);
  const Context& callee = analysis_.context(facts.callee);
  copy_outputs(op, callee.end, facts);
  set_remote_facts(callee);
  write_modified(op, {callee.end.inputs, callee.end.input_pieces}, facts);
  return facts;
}

}  // namespace popsr
