#include "popsr/analysis/context_solver.h"

#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/base/sorted.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

Context at_entry(const PartitionAnalysis& analysis, GraphId graph, const std::vector<PartitionId>& inputs,
                 NarrowingId narrowing) {
  Context context;
  context.graph = graph;
  context.inputs = inputs;
  context.exec = analysis.narrowing(narrowing).exec;
  context.narrowing = narrowing;
  POPSR_CHECK(analysis.entry_tensors(graph).size() == inputs.size());
  return context;
}

}  // namespace

ContextSolver::ContextSolver(PartitionAnalysis& analysis, GraphId graph,
                             const std::vector<PartitionId>& inputs, const std::vector<PartitionId>& remote,
                             NarrowingId narrowing)
    : analysis_(analysis),
      ir_(analysis.ir()),
      table_(ir_.partitions()),
      keeps_(!analysis.assumptions().kept.empty()),
      context_(at_entry(analysis, graph, inputs, narrowing)),
      entries_(analysis.remote_.of(graph)),
      streams_(analysis.streams_.of(graph)),
      remote_(remote),
      // Constants are equal wherever they are read; op outputs are set before they are read.
      memory_(analysis.entry_memory(context_)) {
  POPSR_CHECK(remote_.size() == entries_.size() + streams_.size());
  for (PartitionId& entry : remote_) entry = table_.meet(entry, context_.exec);
  context_.remote = remote_;
}

PartitionId ContextSolver::read(TensorId tensor) {
  const std::uint32_t slot = ir_.storage_index(tensor);
  return slot == kNone ? remote_fact(tensor) : memory_.read(tensor, slot);
}

void ContextSolver::write(TensorId tensor, PartitionId fact) {
  if (keeps_) {
    const auto kept = analysis_.kept(ir_.tensor(tensor).memory.storage);
    if (kept) fact = table_.meet(*kept, context_.exec);
  }
  const std::uint32_t slot = ir_.storage_index(tensor);
  if (slot == kNone) {
    remote_fact(tensor) = fact;
  } else {
    memory_.write(tensor, slot, fact);
  }
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

std::vector<PartitionId> ContextSolver::input_facts(const Op& op) {
  std::vector<PartitionId> facts;
  read_inputs(op, facts);
  return facts;
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
  context_.ops.reserve(graph.ops.size());
  for (const OpId id : graph.ops) step(ir_.op(id));
  for (const TensorId output : graph.outputs) context_.end.outputs.push_back(read(output));
  for (const TensorId entry : analysis_.entry_tensors(graph.id)) {
    context_.end.inputs.push_back(read(entry));
  }
  context_.end.memory = std::move(memory_).all();
  context_.end.remote = std::move(remote_);
  return std::move(context_);
}

void ContextSolver::step(const Op& op) {
  if (op.def->program.control != Control::kNone) {
    OpFacts facts = transfer(op);
    for (std::size_t k = 0; k < op.outputs.size(); ++k) write(op.outputs[k], facts.outputs[k]);
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
      return transfer_call(op, input_facts(op));
    case Control::kRepeat:
      return transfer_repeat(op, input_facts(op));
    default:
      return transfer_conditional(op, input_facts(op));
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
  if (!op.noise.seeds) return std::nullopt;
  // The join breaks no proof: rounding is a function of (inputs, seed block), and outputs already agree
  // inside it.
  PartitionId seeds = *op.noise.seeds == SeedRule::kIdentical ? table_.top() : table_.bottom();
  if (*op.noise.seeds == SeedRule::kPartition) {
    for (std::size_t k = 0; k < outputs; ++k) {
      if (rounds(ir_, op, k)) seeds = table_.join(seeds, outputs_[k]);
    }
  }
  for (std::size_t k = 0; k < outputs; ++k) {
    if (!rounds(ir_, op, k)) continue;
    const PartitionId deterministic = outputs_[k];
    PartitionId& output = outputs_[k];
    output = table_.meet(output, seeds);
    POPSR_CHECK(*op.noise.seeds != SeedRule::kPartition || output == deterministic);
  }
  return seeds;
}

/// Each part keeps its own rule and seeds: what one tensor loses, the others keep.
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

void ContextSolver::write_modified(const Op& op, const std::vector<PartitionId>& final_inputs,
                                   OpFacts& facts) {
  for (const std::uint32_t i : op.call.modified) {
    if (!analysis_.written_.by_call(op, i)) continue;
    const TensorId storage = ir_.tensor(op.inputs[i]).memory.storage;
    const auto it = std::ranges::find(facts.written, storage, &std::pair<TensorId, PartitionId>::first);
    if (it == facts.written.end()) {
      facts.written.emplace_back(storage, final_inputs[i]);
    } else {
      it->second = table_.meet(it->second, final_inputs[i]);
    }
  }
  for (const auto& [storage, written] : facts.written) write(storage, written);
}

OpFacts ContextSolver::transfer_call(const Op& op, const std::vector<PartitionId>& in) {
  OpFacts facts;
  const auto graph = op.get(kGraph);
  facts.callee = analysis_.solve(graph, in, remote_facts(graph), context_.narrowing);
  facts.outputs = analysis_.context(facts.callee).end.outputs;
  set_remote_facts(analysis_.context(facts.callee));
  write_modified(op, analysis_.context(facts.callee).end.inputs, facts);
  return facts;
}

OpFacts ContextSolver::transfer_repeat(const Op& op, std::vector<PartitionId> in) {
  OpFacts facts;
  const std::size_t carried = op.outputs.size();
  if (op.get(kCount) == 0) {
    facts.outputs.assign(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carried));
    return facts;
  }
  // Greatest fixpoint of the values that one iteration hands to the next.
  const auto graph = op.get(kGraph);
  std::vector<PartitionId> remote = remote_facts(graph);
  for (bool changed = true; changed;) {
    facts.callee = analysis_.solve(graph, in, remote, context_.narrowing);
    const Context& body = analysis_.context(facts.callee);
    changed = false;
    const auto fall = [&](PartitionId& value, PartitionId next) {
      const PartitionId met = table_.meet(value, next);
      changed |= met != value;
      value = met;
    };
    for (std::size_t i = 0; i < carried; ++i) {
      const TensorId input = ir_.tensor(ir_.graph(graph).inputs[i]).memory.storage;
      if (!analysis_.kept(input)) fall(in[i], body.end.outputs[i]);
    }
    for (const std::uint32_t i : op.call.modified) {
      if (i >= carried) fall(in[i], body.end.inputs[i]);
    }
    for (std::size_t i = 0; i < remote.size(); ++i) fall(remote[i], body.end.remote[i]);
  }
  const Context& body = analysis_.context(facts.callee);
  set_remote_facts(body);
  facts.outputs = body.end.outputs;
  std::vector<PartitionId> final_inputs = body.end.inputs;
  for (std::size_t i = 0; i < carried; ++i) final_inputs[i] = body.end.outputs[i];
  write_modified(op, final_inputs, facts);
  return facts;
}

}  // namespace popsr
