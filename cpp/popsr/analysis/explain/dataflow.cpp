#include "popsr/analysis/explain/dataflow.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "popsr/analysis/memory/fact_replay.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/base/containers/sorted.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

constexpr std::uint32_t kFar = std::numeric_limits<std::uint32_t>::max();

std::size_t at(std::int32_t time) { return static_cast<std::size_t>(time); }

}  // namespace

PartitionId rule_of(const Ir& ir, const Op& op, std::span<const PartitionId> inputs, std::size_t output) {
  if (!op.def->has_rule()) return ir.partitions().bottom();
  return op.def->replicas.partition(RuleContext{ir.partitions(), ir, op, inputs, ir.partitions().top()},
                                    output);
}

Dataflow::Dataflow(const PartitionAnalysis& facts) : facts_(facts), written_(facts.ir()), parts_(facts.ir()) {
  frames_.push_back({.context = facts.main_id()});
}

TensorId Dataflow::storage_of(TensorId id) const {
  if (ir().tensor(id).state.home != kNone) id = ir().tensor(id).state.home;
  return ir().tensor(id).memory.storage;
}

// Frames

FrameId Dataflow::enter(FrameId caller, std::uint32_t call, std::uint32_t branch) {
  if (const auto it = entered_.find({caller, call, branch}); it != entered_.end()) return it->second;
  const FactView facts = context(caller).ops[call];
  const ContextId callee = branch == 0 ? facts.callee : facts.otherwise;
  POPSR_CHECK(callee != kNone);
  if (frames_.size() >= kMaxFrames) return frame_of(callee);
  return add_frame({callee, caller, call, branch});
}

FrameId Dataflow::add_frame(const Frame& frame) {
  const FrameId id = frames_.next();
  frames_.push_back(frame);
  entered_.emplace(std::tuple(frame.caller, frame.call, frame.branch), id);
  return id;
}

const Op& Dataflow::call_of(FrameId id) const {
  return ir().op(graph(frames_[id].caller).ops[frames_[id].call]);
}

CalledGraph Dataflow::called(FrameId id) const {
  return called_graphs(ir(), call_of(id))[frames_[id].branch];
}

void Dataflow::find_call_paths() {
  first_frames_.emplace(facts_.main_id(), 0);
  std::deque<FrameId> queue{kMainFrame};
  while (!queue.empty()) {
    const FrameId at = queue.front();
    queue.pop_front();
    for (const std::uint32_t call : index(context(at).graph).calls) {
      for (std::uint32_t branch = 0; branch < 2; ++branch) {
        const FactView facts = context(at).ops[call];
        const ContextId callee = branch == 0 ? facts.callee : facts.otherwise;
        if (callee == kNone || first_frames_.contains(callee)) continue;
        const auto entered = entered_.find({at, call, branch});
        first_frames_.emplace(
            callee, entered == entered_.end() ? add_frame({callee, at, call, branch}) : entered->second);
        queue.push_back(first_frames_.at(callee));
      }
    }
  }
}

FrameId Dataflow::frame_of(ContextId id) {
  if (first_frames_.empty()) find_call_paths();
  return first_frames_.at(id);
}

std::vector<OpId> Dataflow::call_path(FrameId id) const {
  std::vector<OpId> path;
  for (; frames_[id].caller != kNone; id = frames_[id].caller) path.push_back(call_of(id).id);
  std::ranges::reverse(path);
  return path;
}

// Writers

std::vector<TensorId> Dataflow::written_storages(const Op& op) {
  std::vector<TensorId> result;
  if (op.def->memory.view) return result;
  for (const TensorId output : all_outputs(ir(), op)) result.push_back(ir().tensor(output).memory.storage);
  if (op.def->program.control == Control::kNone || !runs_body(op)) return result;
  for (const std::uint32_t i : op.call.modified) {
    if (written_.by_call(op, i)) result.push_back(ir().tensor(op.inputs[i]).memory.storage);
  }
  for (const CalledGraph& called : called_graphs(ir(), op)) {
    const std::vector<TensorId>& entries = facts_.remote().stored(called.graph);
    result.insert(result.end(), entries.begin(), entries.end());
  }
  return result;
}

Dataflow::GraphIndex Dataflow::make_index(const Graph& graph) {
  GraphIndex result;
  const std::vector<TensorId>& entry = facts_.entry_tensors(graph.id);
  result.entry.assign(graph.tensors.size(), kNone);
  for (std::uint32_t i = 0; i < entry.size(); ++i) result.entry[ir().storage_index(entry[i])] = i;
  std::vector<std::pair<std::uint32_t, std::int32_t>> writes;  // slots of storages, and who writes there
  writes.reserve(graph.ops.size());
  result.first.assign(graph.tensors.size() + 1, 0);
  const auto add = [&](std::uint32_t slot, std::uint32_t position) {
    ++result.first[slot + 1];
    writes.emplace_back(slot, static_cast<std::int32_t>(position));
  };
  const FlatSchedule& schedule = facts_.schedule(graph.id);
  for (std::uint32_t i = 0; i < schedule.size(); ++i) {
    if (schedule[i].def->program.control != Control::kNone) result.calls.push_back(i);
    if (schedule[i].alone) {
      if (schedule[i].view) continue;
      for (const TensorId output : schedule.outputs(i)) add(ir().storage_index(output), i);
      continue;
    }
    for (const TensorId storage : written_storages(ir().op(schedule[i].id))) {
      const std::uint32_t slot = ir().storage_index(storage);
      if (slot != kNone) {
        add(slot, i);
        continue;
      }
      std::vector<std::int32_t>& of_entry = result.remote[storage];
      const auto position = static_cast<std::int32_t>(i);
      if (of_entry.empty() || of_entry.back() != position) of_entry.push_back(position);
    }
  }
  for (std::size_t t = 1; t < result.first.size(); ++t) result.first[t] += result.first[t - 1];
  result.writers.resize(writes.size());
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end());
  for (const auto& [slot, position] : writes) result.writers[next[slot]++] = position;  // ascending
  return result;
}

const Dataflow::GraphIndex& Dataflow::index(GraphId graph) {
  if (const auto it = indices_.find(graph); it != indices_.end()) return it->second;
  GraphIndex made = make_index(ir().graph(graph));
  return indices_.emplace(graph, std::move(made)).first->second;
}

std::span<const std::int32_t> Dataflow::writers(GraphId graph, TensorId storage) {
  const GraphIndex& of_graph = index(graph);
  const Tensor& tensor = ir().tensor(storage);
  if (tensor.kind == TensorKind::kRemote) {
    const auto it = of_graph.remote.find(storage);
    return it == of_graph.remote.end() ? std::span<const std::int32_t>() : it->second;
  }
  const std::uint32_t begin = of_graph.first[tensor.index], end = of_graph.first[tensor.index + 1];
  return std::span(of_graph.writers).subspan(begin, end - begin);
}

// Memory that views see

bool Dataflow::touches(const Value& value, TensorId tensor) const {
  return is_viewed(ir(), value.storage) ? parts_.touches(value.storage, value.part, tensor)
                                        : ir().tensor(tensor).memory.storage == value.storage;
}

/// The rest of a value's memory, where none of the tensors has an element.
std::optional<PartId> Dataflow::rest(const Value& value, const std::vector<TensorId>& written) {
  PartId left = value.part;
  for (const TensorId tensor : written) {
    const std::optional<PartId> next = parts_.rest(value.storage, left, tensor);
    if (!next) return std::nullopt;
    left = *next;
  }
  return left;
}

std::optional<Value> Dataflow::untouched(const Value& value) {
  const Op* op = writer(value);
  if (op == nullptr || !is_viewed(ir(), value.storage)) return std::nullopt;
  const std::optional<PartId> left = rest(value, op->outputs);
  if (!left) return std::nullopt;
  // Another part of a merged op may have written that.
  const Value other{value.frame, value.storage, value.time, *left};
  if (op->schedule.part_of != kNone && *left != value.part && writes(ir().op(op->schedule.part_of), other))
    return other;
  return before(value.frame, value.storage, static_cast<std::uint32_t>(value.time), *left);
}

const std::vector<std::int32_t>& Dataflow::shared_writers(GraphId graph, TensorId root, PartId part) {
  const auto [it, fresh] = shared_writers_.try_emplace({root, part});
  if (!fresh) return it->second;
  std::vector<TensorId> names = ir().views(root);
  names.push_back(root);
  for (const TensorId name : names) {
    if (!parts_.touches(root, part, name)) continue;
    const std::span<const std::int32_t> times = writers(graph, name);
    it->second.insert(it->second.end(), times.begin(), times.end());
  }
  std::ranges::sort(it->second);
  const auto repeated = std::ranges::unique(it->second);
  it->second.erase(repeated.begin(), repeated.end());
  return it->second;
}

/// Facts of parts are not kept: the graph is run through once for each part that is asked for.
PartitionId Dataflow::shared_fact(const Context& context, TensorId root, std::int32_t time, PartId part) {
  const std::vector<std::int32_t>& times = shared_writers(context.graph, root, part);
  std::vector<PartitionId>& known = shared_facts_[{&context, root, part}];
  if (known.empty()) {
    MemoryFacts memory = facts_.entry_memory(context);
    const Region region = parts_.region(root, part);
    const std::vector<OpId>& ops = ir().graph(context.graph).ops;
    for (std::size_t i = 0; i < ops.size() && known.size() < times.size(); ++i) {
      replay(ir(), context, ir().op(ops[i]), i, memory);
      if (times[known.size()] == static_cast<std::int32_t>(i)) known.push_back(memory.read(region));
    }
  }
  return known[sorted_index(times, time)];
}

// Values

std::int32_t Dataflow::time_before(GraphId graph, TensorId tensor, std::uint32_t op, PartId part) {
  const TensorId storage = storage_of(tensor);
  const auto end = static_cast<std::int32_t>(op);
  if (const View* const view = view_of(ir(), storage)) {
    auto time = static_cast<std::int32_t>(ir().op(ir().tensor(storage).uses.producer).schedule.position);
    if (time >= end) return -1;
    for (const Region& region : view->regions) {
      time = std::max(time, time_before(graph, region.root, op, parts_.number(region)));
    }
    return time;
  }
  const std::span<const std::int32_t> all =
      is_viewed(ir(), storage) ? std::span(shared_writers(graph, storage, part)) : writers(graph, storage);
  const auto next = std::ranges::lower_bound(all, end);
  return next == all.begin() ? -1 : *std::prev(next);
}

Value Dataflow::before(FrameId frame, TensorId tensor, std::uint32_t op, PartId part) {
  return {frame, storage_of(tensor), time_before(context(frame).graph, tensor, op, part), part};
}

Value Dataflow::last(FrameId frame, TensorId tensor) {
  return before(frame, tensor, static_cast<std::uint32_t>(graph(frame).ops.size()));
}

const Op* Dataflow::writer(const Value& value) const {
  if (view_of(ir(), value.storage) != nullptr) return &ir().op(ir().tensor(value.storage).uses.producer);
  return value.time < 0 ? nullptr : &writer_at(graph(value.frame).id, value.storage, value.time, value.part);
}

/// True if a part of a merged op writes some of the value's memory.
bool Dataflow::writes(const Op& merged, const Value& value) const {
  return std::ranges::any_of(merged.schedule.parts, [&](OpId part) {
    return std::ranges::any_of(ir().op(part).outputs, [&](TensorId t) { return touches(value, t); });
  });
}

const Op& Dataflow::writer_at(GraphId graph, TensorId storage, std::int32_t time, PartId part_of) const {
  const Op& op = ir().op(ir().graph(graph).ops[at(time)]);
  const Value value{.storage = storage, .part = part_of};
  const auto writes = [&](OpId part) {
    const std::vector<TensorId> outputs = all_outputs(ir(), ir().op(part));
    return std::ranges::any_of(outputs, [&](TensorId t) { return touches(value, t); });
  };
  const auto part = std::ranges::find_if(op.schedule.parts, writes);
  return part == op.schedule.parts.end() ? op : ir().op(*part);
}

std::optional<std::size_t> Dataflow::output(const Value& value) const {
  const Op& op = *writer(value);
  for (std::size_t k = op.outputs.size(); k-- > 0;) {
    if (op.def->memory.view || touches(value, op.outputs[k])) return k;
  }
  if (op.def->program.remote != Remote::kStores) return std::nullopt;
  const std::vector<TensorId> outputs = all_outputs(ir(), op);
  return static_cast<std::size_t>(std::ranges::find(outputs, value.storage) - outputs.begin());
}

PartitionId Dataflow::entry_fact(const Context& context, TensorId storage, PartId part) {
  if (ir().tensor(storage).kind == TensorKind::kRemote) {
    return context.remote[sorted_index(facts_.remote().of(context.graph), storage)];
  }
  const std::uint32_t input = entry_of(index(context.graph), storage);
  if (input == kNone) return context.exec;
  if (part != kWholePart && context.pieces.contains(input))
    return facts_.entry_memory(context).read(parts_.region(storage, part));
  return ir().partitions().meet(context.inputs[input], context.exec);
}

PartitionId Dataflow::fact(const Context& context, TensorId storage, std::int32_t time, PartId part) {
  const Graph& here = ir().graph(context.graph);
  if (time >= 0 && !here.has_views) {
    const FlatSchedule& schedule = facts_.schedule(here.id);
    const std::span<const TensorId> outputs = schedule.outputs(at(time));
    for (std::size_t k = schedule[at(time)].alone ? outputs.size() : 0; k-- > 0;) {
      if (here.tensors[ir().storage_index(outputs[k])] == storage) return context.ops.outputs(at(time))[k];
    }
  }
  if (const View* const view = view_of(ir(), storage)) {
    PartitionId met = ir().partitions().top();
    for (const Region& region : view->regions) {
      const PartId shown = parts_.number(region);
      const auto end = static_cast<std::uint32_t>(time + 1);
      const std::int32_t written = time_before(context.graph, region.root, end, shown);
      met = ir().partitions().meet(met, fact(context, region.root, written, shown));
    }
    return met;
  }
  if (time < 0) return entry_fact(context, storage, part);
  if (is_viewed(ir(), storage)) return shared_fact(context, storage, time, part);
  const Op& op = writer_at(context.graph, storage, time, part);
  const FactView facts = facts_of(ir(), context, op);
  if (op.def->program.control != Control::kNone) {
    const std::span<const Left> left = left_in(op, storage);
    const auto of_output = [&op](const Left& each) { return each.second < op.outputs.size(); };
    const auto end = std::ranges::partition_point(left, of_output);
    if (end != left.begin()) return facts.outputs[std::prev(end)->second];
  }
  for (std::size_t k = op.def->program.control == Control::kNone ? op.outputs.size() : 0; k-- > 0;) {
    if (ir().tensor(op.outputs[k]).memory.storage == storage) return facts.outputs[k];
  }
  for (const auto& [written, fact] : facts.written) {
    if (written == storage) return fact;
  }
  const bool one_graph = facts.callee != kNone && facts.otherwise == kNone;
  if (one_graph && ir().tensor(storage).kind == TensorKind::kRemote) {
    const Context& callee = facts_.context(facts.callee);
    return callee.end.remote[sorted_index(facts_.remote().of(callee.graph), storage)];
  }
  const std::vector<TensorId> outputs = all_outputs(ir(), op);
  const auto made = static_cast<std::size_t>(std::ranges::find(outputs, storage) - outputs.begin());
  if (made < facts.outputs.size()) return facts.outputs[made];
  // A loop of no iteration leaves the memory as it was, and so does a branch that no replica takes.
  const auto end = static_cast<std::uint32_t>(time);
  return fact(context, storage, time_before(context.graph, storage, end, part), part);
}

// Sources

const std::vector<Dataflow::Left>& Dataflow::left_by(const Op& op) {
  const auto [it, fresh] = left_.try_emplace(op.id);
  std::vector<Left>& left = it->second;
  if (!fresh) return left;
  const auto add = [&](TensorId tensor) {
    left.emplace_back(ir().tensor(tensor).memory.storage, static_cast<std::uint32_t>(left.size()));
  };
  for (const TensorId output : op.outputs) add(output);
  for (const std::uint32_t i : op.call.modified) add(op.inputs[i]);
  std::ranges::sort(left);
  return left;
}

std::span<const Dataflow::Left> Dataflow::left_in(const Op& op, TensorId storage) {
  const auto range = std::ranges::equal_range(left_by(op), storage, {}, &Left::first);
  return {range.begin(), range.end()};
}

/// The value that a branch or body leaves in the memory, and the part that it leaves unchanged.
void Dataflow::add_branch_sources(const Value& value, const Op& op, std::uint32_t branch,
                                  std::vector<Source>& result) {
  const CalledGraph called = called_graphs(ir(), op)[branch];
  const FrameId inner = enter(value.frame, op.schedule.position, branch);
  const Graph& body = graph(inner);
  std::vector<TensorId> left;  // tensors of the caller
  const auto add = [&](TensorId tensor, TensorId inside) {
    if (!touches(value, tensor)) return;
    left.push_back(tensor);
    const Value whole = last(inner, inside);
    const bool root = value.part != kWholePart && storage_of(tensor) == value.storage;
    if (root && is_viewed(ir(), whole.storage)) {
      Region region = parts_.region(value.storage, value.part);
      region.root = whole.storage;  // of the same shape
      const auto end = static_cast<std::uint32_t>(body.ops.size());
      const Value part = before(inner, inside, end, parts_.number(region));
      result.push_back({part, Link::kResult});
      if (ir().partitions().refines(fact(part), fact(value))) return;
    }
    result.push_back({whole, Link::kResult});
  };
  const auto add_at = [&](std::size_t place) {
    if (place < op.outputs.size()) return add(op.outputs[place], body.outputs[place]);
    const std::uint32_t i = op.call.modified[place - op.outputs.size()];
    if (i < called.first || i >= called.end || !written_.by_call(op, i)) return;
    const bool carried = op.def->program.control == Control::kRepeat && i < op.outputs.size();
    add(op.inputs[i], carried ? body.outputs[i] : body.inputs[i - called.first]);
  };
  if (is_viewed(ir(), value.storage)) {
    for (std::size_t place = 0; place < op.outputs.size() + op.call.modified.size(); ++place) add_at(place);
  } else {
    for (const auto& [storage, place] : left_in(op, value.storage)) add_at(place);
  }
  if (std::ranges::binary_search(facts_.remote().stored(called.graph), value.storage)) {
    left.push_back(value.storage);
    result.push_back({last(inner, value.storage), Link::kResult});
  }
  std::optional<PartId> untouched;
  if (is_viewed(ir(), value.storage)) {
    untouched = rest(value, left);
  } else if (left.empty()) {
    untouched = kWholePart;
  }
  if (untouched) {
    result.push_back(
        {before(value.frame, value.storage, op.schedule.position, *untouched), Link::kUntouched, branch});
  }
}

void Dataflow::add_call_sources(const Value& value, const Op& op, std::vector<Source>& result) {
  if (!runs_body(op)) {
    const std::size_t k = *output(value);
    result.push_back({before(value.frame, op.inputs[k], op.schedule.position), Link::kArgument});
    return;
  }
  if (op.def->program.control == Control::kConditional) {
    result.push_back({before(value.frame, op.inputs[0], op.schedule.position), Link::kCondition});
  }
  const auto branches = static_cast<std::uint32_t>(called_graphs(ir(), op).size());
  for (std::uint32_t b = 0; b < branches; ++b) add_branch_sources(value, op, b, result);
}

void Dataflow::add_entry_sources(const Value& value, std::vector<Source>& result) {
  const Frame frame = frames_[value.frame];
  // Parts of memory keep facts of their own as far as these are few: then all of it is looked at.
  const PartitionId claimed = entry_fact(context(value.frame), value.storage, value.part);
  const auto add_parts = [&](const Value& part, const Value& whole, Link link) {
    if (part.time >= 0 || link == Link::kArgument) result.push_back({part, link});
    if (part == whole || ir().partitions().refines(fact(part), claimed)) return;
    if (whole.time >= 0 || link == Link::kArgument) result.push_back({whole, link});
  };
  const auto add_end = [&](Link link) {
    const auto end = static_cast<std::uint32_t>(graph(value.frame).ops.size());
    add_parts(before(value.frame, value.storage, end, value.part), before(value.frame, value.storage, end),
              link);
  };
  if (frame.caller == kNone) return add_end(Link::kRun);
  const Op& call = call_of(value.frame);
  const bool loop = call.def->program.control == Control::kRepeat;
  if (ir().tensor(value.storage).kind == TensorKind::kRemote) {
    result.push_back({before(frame.caller, value.storage, frame.call), Link::kArgument});
    if (loop) add_end(Link::kIteration);
    return;
  }
  const std::uint32_t i = entry_of(index(context(value.frame).graph), value.storage);
  if (i == kNone) return;  // a constant
  const TensorId given = call.inputs[called(value.frame).first + i];
  const Value whole = before(frame.caller, given, frame.call);
  Value part = whole;
  if (value.part != kWholePart && is_viewed(ir(), whole.storage)) {
    Region region = parts_.region(value.storage, value.part);
    region.root = whole.storage;  // of the same shape
    part = before(frame.caller, given, frame.call, parts_.number(region));
  }
  add_parts(part, whole, Link::kArgument);
  if (!loop) return;
  if (i < call.outputs.size()) {
    result.push_back({last(value.frame, graph(value.frame).outputs[i]), Link::kIteration});
  } else if (written_.by_call(call, i)) {
    add_end(Link::kIteration);
  }
}

Dataflow::PlainWriter Dataflow::plain_writer(const Value& value) const {
  if (value.time < 0 || graph(value.frame).has_views) return {};
  const FlatSchedule& schedule = facts_.schedule(graph(value.frame).id);
  const FlatOp& op = schedule[at(value.time)];
  return op.alone ? PlainWriter{&op, schedule.inputs(at(value.time))} : PlainWriter{};
}

Value Dataflow::operand(const Value& value, TensorId input) {
  const Graph& here = graph(value.frame);
  const std::uint32_t slot = ir().storage_index(input);
  const GraphIndex& writes = index(here.id);
  const auto all =
      std::span(writes.writers).subspan(writes.first[slot], writes.first[slot + 1] - writes.first[slot]);
  const auto next = std::ranges::lower_bound(all, value.time);
  return {value.frame, here.tensors[slot], next == all.begin() ? -1 : *std::prev(next), kWholePart};
}

std::vector<Source> Dataflow::sources(const Value& value) {
  std::vector<Source> result;
  const Op* op = writer(value);
  if (op == nullptr) {
    add_entry_sources(value, result);
  } else if (const View* const view = view_of(ir(), value.storage)) {
    for (const Region& region : view->regions) {
      const auto end = static_cast<std::uint32_t>(value.time + 1);
      result.push_back({before(value.frame, region.root, end, parts_.number(region)), Link::kView});
    }
  } else if (op->def->program.control != Control::kNone) {
    add_call_sources(value, *op, result);
  } else {
    const std::vector<TensorId> inputs = all_inputs(ir(), *op);
    for (std::uint32_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNone) continue;
      result.push_back(
          {before(value.frame, inputs[i], static_cast<std::uint32_t>(value.time)), Link::kOperand, i});
    }
    if (const auto old = untouched(value)) result.push_back({*old, Link::kUntouched});
  }
  return result;
}

// Nearness

Nearness Dataflow::nearness_of(const Context& context, const Op& op, const std::vector<Nearness>& known) {
  Nearness nearest{.distance = kFar};
  for (const OpId part : op.schedule.parts) {
    nearest.distance = std::min(nearest.distance, nearness_of(context, ir().op(part), known).distance);
  }
  if (!op.schedule.parts.empty()) return nearest;
  PartitionTable& table = ir().partitions();
  if (op.def->program.control != Control::kNone || !op.def->has_rule()) return {};
  const FactView facts = facts_of(ir(), context, op);
  // Seeds that were not chosen by what the outputs prove may be where a path ends.
  const std::optional<SeedRule> rule = facts_.seed_rule(op);
  if (rule && *rule != SeedRule::kPartition && facts.seeds != table.top()) return {};
  const std::vector<TensorId> inputs = all_inputs(ir(), op);
  const bool meets = op.def->replicas.partition == meet_of_inputs;
  if (!meets) {
    const std::vector<PartitionId> equal(inputs.size(), table.top());
    for (std::size_t k = 0; k < facts.outputs.size(); ++k) {
      if (rule_of(ir(), op, equal, k) != table.top()) return {};
    }
  }
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNone || !op.def->influences(i)) continue;
    const TensorId storage = ir().tensor(inputs[i]).memory.storage;
    const std::int32_t time = time_before(context.graph, storage, op.schedule.position);
    const PartitionId found = fact(context, storage, time);
    const bool own = time >= 0 && view_of(ir(), storage) == nullptr && !is_viewed(ir(), storage);
    const std::uint32_t distance = 1 + (own ? known[at(time)].distance : 0);
    if (found == table.top() || distance >= nearest.distance) continue;
    nearest = {distance, meets ? i : kNone, storage, time, found};
  }
  return nearest.distance == kFar ? Nearness() : nearest;
}

const std::vector<Nearness>& Dataflow::all_nearness(ContextId id) {
  if (id.index() >= nearness_.size()) nearness_.resize(id.index() + 1);
  if (!nearness_[id].empty()) return nearness_[id];
  const Context& context = facts_.context(id);
  const std::vector<OpId>& ops = ir().graph(context.graph).ops;
  std::vector<Nearness> known(ops.size());
  if (context.exec == ir().partitions().top()) {  // else any value may be where a path ends
    for (std::uint32_t i = 0; i < ops.size(); ++i) known[i] = nearness_of(context, ir().op(ops[i]), known);
  }
  return nearness_[id] = std::move(known);
}

Nearness Dataflow::nearness(const Value& value) {
  // Nothing is known of memory that views see: its writers leave parts of it alone.
  const bool shared = view_of(ir(), value.storage) != nullptr || is_viewed(ir(), value.storage);
  if (value.time < 0 || shared) return {};
  return all_nearness(frames_[value.frame].context)[at(value.time)];
}

}  // namespace popsr
