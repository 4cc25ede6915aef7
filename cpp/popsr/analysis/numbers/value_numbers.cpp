#include "popsr/analysis/numbers/value_numbers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/memory.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/stream_positions.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

using Kind = NumberTable::Kind;
using Key = NumberTable::Key;

/// Graphs of more ops are not run, nor so many ops, called graphs counted as often as they are run.
constexpr std::size_t kMostOps = 4096, kMostSteps = 32768;
/// Iterations of a loop that are run; values after more iterations get new numbers.
constexpr std::int64_t kMostIterations = 4;
constexpr std::uint32_t kUnread = 0;  ///< The operand of an op that does not read it.

/// True if more than the op's operands counts.
bool is_arbitrary(const Ir& ir, const SeedRules& seed_rules, const Op& op) {
  const MemoryAspect& memory = op.def->memory;
  return seed_rules.of(ir, op) || op.def->numerics.random || !op.def->has_rule() ||
         (memory.undefined != nullptr && memory.undefined(op));
}

/// True for attributes with the same bits: 0 and -0 differ.
bool same_attribute(const Attribute& a, const Attribute& b) {
  const auto bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return bits(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a))
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), bits);
  return a == b;
}

bool same_symbol(const Ir& ir, const Op& a, const Op& b) {
  const auto same_types = [&ir](TensorId x, TensorId y) {
    return (x == kNone) == (y == kNone) && (x == kNone || ir.tensor(x).type == ir.tensor(y).type);
  };
  return std::ranges::equal(a.attrs, b.attrs, same_attribute) &&
         std::ranges::equal(a.inputs, b.inputs, same_types) &&
         std::ranges::equal(a.outputs, b.outputs, same_types);
}

}  // namespace

const EqualResults& ValueNumbers::equal_results(const Op& conditional) {
  if (seen_.empty()) {
    run_whole(kMainGraph, true);
    if (left_ > 0) {
      for (const GraphId id : ids<GraphId>(ir_.num_graphs())) seen_.insert(id);
    } else {
      equal_results_.clear();
    }
  }
  if (seen_.insert(conditional.graph).second) {
    run_whole(conditional.graph, false);
    for (const OpId op : ir_.graph(conditional.graph).ops) {
      if (left_ == 0) equal_results_.erase(op);
    }
  }
  return equal_results_[conditional.id];
}

/// Runs a graph for whatever it is given.
void ValueNumbers::run_whole(GraphId id, bool with_called) {
  const Graph& graph = ir_.graph(id);
  left_ = graph.ops.size() > kMostOps ? 0 : kMostSteps;
  records_all_ = with_called;
  with_deep_stack([&] {
    std::vector<Number> inputs;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) inputs.push_back(table_.fresh());
    World world{.base = table_.fresh()};
    run(id, inputs, world, true);
  });
}

ValueNumbers::Result ValueNumbers::run(GraphId id, const std::vector<Number>& inputs, World& world,
                                       bool records) {
  const Graph& graph = ir_.graph(id);
  Frame frame{.graph = id, .memory = std::vector<Number>(graph.tensors.size()), .records = records};
  for (std::size_t i = 0; i < inputs.size(); ++i) frame.memory[ir_.tensor(graph.inputs[i]).index] = inputs[i];
  for (const OpId op : single_ops(ir_, id)) {
    if (left_ == 0) break;
    --left_;
    step(frame, world, ir_.op(op));
  }
  Result result;
  for (const TensorId output : graph.outputs) result.outputs.push_back(read(frame, output));
  for (const TensorId input : graph.inputs) result.inputs.push_back(read(frame, input));
  return result;
}

void ValueNumbers::step(Frame& frame, World& world, const Op& op) {
  switch (op.def->program.control) {
    case Control::kNone:
      return apply(frame, world, op);
    case Control::kRepeat:
      return repeat(frame, world, op);
    case Control::kConditional:
      return branch(frame, world, op);
    case Control::kCall:
      break;
  }
  const std::vector<Number> outputs = enter(frame, world, op, called_graphs(ir_, op)[0]);
  for (std::size_t k = 0; k < outputs.size(); ++k) write(frame, op.outputs[k], outputs[k]);
}

void ValueNumbers::apply(Frame& frame, World& world, const Op& op) {
  if (op.def->memory.view != nullptr) return;  // found where it is read
  Key key{symbol(op), 0};
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool reads = op.inputs[i] != kNone && op.def->influences(i);
    key.push_back(reads ? read(frame, op.inputs[i]).value : kUnread);
  }
  const Remote remote = op.def->program.remote;
  const std::vector<TensorId> entries =
      remote == Remote::kNone ? std::vector<TensorId>() : remote_entries(ir_, op);
  const bool overwrites = remote == Remote::kStores && entries.size() == 1;
  if (!overwrites && fault_ != SolverFault::kSameMemory) {
    for (const TensorId id : entries) key.push_back(entry(world, id).value);
  }
  if (const std::optional<StreamId> stream = loaded_stream(ir_, op)) {
    const Number now = position(world, *stream);
    if (fault_ != SolverFault::kSameMemory) key.push_back(now.value);
    world.positions[*stream] = table_.of(Kind::kNext, {now.value}, 1);
  }
  const bool arbitrary = is_arbitrary(ir_, seed_rules_, op) && fault_ != SolverFault::kSameNoise;
  const auto result = [&](std::size_t k) {
    key[1] = static_cast<std::uint32_t>(k);
    return arbitrary ? table_.fresh() : table_.of(Kind::kOp, key, key.size() - 2);
  };
  for (std::size_t k = 0; k < op.outputs.size(); ++k) write(frame, op.outputs[k], result(k));
  for (std::size_t k = 0; remote == Remote::kStores && k < entries.size(); ++k)
    world.entries[entries[k]] = result(op.outputs.size() + k);
}

/// Runs a graph and writes the values it modifies by reference; returns its outputs.
std::vector<Number> ValueNumbers::enter(Frame& frame, World& world, const Op& op, const CalledGraph& called) {
  std::vector<Number> inputs;
  for (std::uint32_t i = called.first; i < called.end; ++i) {
    inputs.push_back(op.inputs[i] == kNone ? Number(kUnread) : resolve(read(frame, op.inputs[i]), world));
  }
  Result result = run(called.graph, inputs, world, frame.records && records_all_);
  for (const std::uint32_t i : op.call.modified) {
    if (i >= called.first && i < called.end && written_.by_call(op, i))
      write(frame, op.inputs[i], result.inputs[i - called.first]);
  }
  return std::move(result.outputs);
}

void ValueNumbers::repeat(Frame& frame, World& world, const Op& op) {
  const std::optional<std::int64_t> count = counted_iterations(op);  // else any number
  const std::size_t carried = op.outputs.size();
  const GraphId body = called_graphs(ir_, op)[0].graph;
  std::vector<Number> now;
  for (const TensorId input : op.inputs)
    now.push_back(input == kNone ? Number(kUnread) : resolve(read(frame, input), world));
  const bool records = frame.records && records_all_;
  bool ended = count == 0;
  for (std::int64_t i = 0; i < std::min(count.value_or(0), kMostIterations) && !ended; ++i) {
    const World before = world;
    const Result result = run(body, now, world, records);
    std::vector<Number> next = now;
    std::copy(result.outputs.begin(), result.outputs.end(), next.begin());
    for (const std::uint32_t k : op.call.modified) {
      if (k >= carried) next[k] = result.inputs[k];
    }
    ended = i + 1 == count || (next == now && world == before);
    now = std::move(next);
  }
  if (!ended) {
    const auto forget = [&] {
      for (std::size_t i = 0; i < carried; ++i) now[i] = table_.fresh();
      for (const std::uint32_t i : op.call.modified) now[i] = table_.fresh();
      world = {.base = table_.fresh(), .truths = std::move(world.truths)};
    };
    forget();
    run(body, now, world, records);  // any other iteration
    forget();
  }
  const auto last = [&](std::size_t i) { return ended ? now[i] : table_.fresh(); };
  for (std::size_t k = 0; k < carried; ++k) {
    now[k] = last(k);
    write(frame, op.outputs[k], now[k]);
  }
  for (const std::uint32_t i : op.call.modified) {
    if (written_.by_call(op, i)) write(frame, op.inputs[i], i < carried ? now[i] : last(i));
  }
}

/// The conditional of which that branch runs, where the condition has that truth.
ValueNumbers::Ends ValueNumbers::run_branch(const Frame& frame, const World& world, const Op& op,
                                            const CalledGraph& branch, std::pair<Number, bool> truth) {
  Ends ends{frame, world};
  ends.world.truths.insert_or_assign(truth.first, truth.second);
  const std::vector<Number> outputs = enter(ends.frame, ends.world, op, branch);
  for (std::size_t k = 0; k < outputs.size(); ++k) write(ends.frame, op.outputs[k], outputs[k]);
  return ends;
}

void ValueNumbers::branch(Frame& frame, World& world, const Op& op) {
  const Number condition = resolve(read(frame, op.inputs[0]), world);
  const std::vector<CalledGraph> branches = called_graphs(ir_, op);
  std::optional<bool> known;
  if (const auto it = world.truths.find(condition); it != world.truths.end()) {
    known = it->second;
    used_.insert(condition);
  }
  std::optional<Ends> taken, other;
  const Number first = table_.next();
  const bool was_used = used_.erase(condition) > 0;
  if (known != false) taken = run_branch(frame, world, op, branches[0], {condition, true});
  // The branches are compared on replicas where the condition is false: in the other the then branch runs.
  const bool matters = used_.contains(condition) || known == false;
  if (was_used) used_.insert(condition);
  if (known != true) {
    other = run_branch(frame, world, op, branches[1], {condition, false});
    if (frame.records) {
      const Ends both_ends = matters ? run_branch(frame, world, op, branches[0], {condition, false}) : *taken;
      note(op, {both_ends, *other, known ? nullptr : &*taken, first});
    }
  }
  if (known) {
    Ends& ends = *known ? *taken : *other;
    frame = std::move(ends.frame);
    world = std::move(ends.world);
    return;
  }
  merge(condition, frame, *taken, *other);
  merge(condition, world, taken->world, other->world);
}

/// Removes from the equal results of an op the ones that are not equal here.
void ValueNumbers::note(const Op& op, const BranchPair& both_ends) {
  EqualResults& equal_results = equal_results_[op.id];
  const bool is_first = !std::exchange(equal_results.is_known, true);
  if (is_first) equal_results.outputs.assign(op.outputs.size(), true);
  // The branch may draw noise if the condition is true; of other seeds than if all replicas took it.
  const auto same = [&](const auto& value) {
    if (value(both_ends.then_branch) != value(both_ends.else_branch)) return false;
    return both_ends.taken == nullptr || table_.newest(value(*both_ends.taken)) < both_ends.first;
  };
  const auto same_tensor = [&](TensorId id) {
    return same([&](const Ends& ends) { return read(ends.frame, id); });
  };
  for (std::size_t k = 0; k < op.outputs.size(); ++k)
    equal_results.outputs[k] = equal_results.outputs[k] && same_tensor(op.outputs[k]);
  for (const std::uint32_t i : op.call.modified) {
    if (is_first) equal_results.tensors.insert(ir_.tensor(op.inputs[i]).memory.storage);
  }
  std::erase_if(equal_results.tensors, [&](TensorId each) { return !same_tensor(each); });
  const auto base = [](const Ends& ends) { return ends.world.base; };
  equal_results.memory = equal_results.memory && same(base);
  for (const Ends* ends : {&both_ends.then_branch, &both_ends.else_branch, both_ends.taken}) {
    if (ends == nullptr) continue;
    for (const auto& [id, number] : ends->world.entries) {
      if (!same([&, id = id](const Ends& of) { return entry(of.world, id); }))
        equal_results.differing_entries.insert(id);
    }
    for (const auto& [id, number] : ends->world.positions) {
      if (!same([&, id = id](const Ends& of) { return position(of.world, id); }))
        equal_results.differing_positions.insert(id);
    }
  }
}

void ValueNumbers::merge(Number condition, Frame& frame, const Ends& taken, const Ends& other) {
  const std::vector<TensorId>& tensors = ir_.graph(frame.graph).tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (taken.frame.memory[i] == other.frame.memory[i]) {
      frame.memory[i] = taken.frame.memory[i];
    } else {  // where memory has no number yet, reading gives it one
      frame.memory[i] =
          table_.choice(condition, read(taken.frame, tensors[i]), read(other.frame, tensors[i]));
    }
  }
}

void ValueNumbers::merge(Number condition, World& world, const World& taken, const World& other) {
  if (taken.base != other.base) {
    world = {.base = table_.fresh(), .truths = std::move(world.truths)};
    return;
  }
  world.base = taken.base;
  for (const World* each : {&taken, &other}) {
    for (const auto& [id, number] : each->entries)
      world.entries[id] = table_.choice(condition, entry(taken, id), entry(other, id));
    for (const auto& [id, number] : each->positions)
      world.positions[id] = table_.choice(condition, position(taken, id), position(other, id));
  }
}

Number ValueNumbers::resolve(Number number, const World& world) {
  while (const NumberTable::Choice* const choice = table_.find_choice(number)) {
    const auto known = world.truths.find(choice->condition);
    if (known == world.truths.end()) break;
    used_.insert(choice->condition);
    number = known->second ? choice->if_true : choice->if_false;
  }
  return number;
}

Number ValueNumbers::read(const Frame& frame, TensorId tensor) {
  const TensorId storage = ir_.tensor(tensor).memory.storage;
  const Tensor& home = ir_.tensor(storage);
  if (home.memory.view == nullptr) {
    const Number number = frame.memory[home.index];
    if (number != Number()) return number;
    return home.kind == TensorKind::kConstant ? constant(storage)
                                              : table_.of(Kind::kLeaf, {storage.value}, 0);
  }
  Key key = map_of(*home.memory.view);
  for (const TensorId base : home.memory.view->bases) key.push_back(read(frame, base).value);
  return table_.of(Kind::kView, std::move(key), home.memory.view->bases.size());
}

void ValueNumbers::write(Frame& frame, TensorId tensor, Number number) {
  const Tensor& home = ir_.tensor(ir_.tensor(tensor).memory.storage);
  if (home.memory.view == nullptr) {
    frame.memory[home.index] = number;
    return;
  }
  const View& view = *home.memory.view;
  for (const Region& region : view.regions) {
    const Number old = read(frame, region.root);
    Key key = map_of(view);
    key.insert(key.end(), {region.root.value, old.value, number.value});
    frame.memory[ir_.tensor(region.root).index] = table_.of(Kind::kWritten, std::move(key), 2);
  }
}

Number ValueNumbers::entry(const World& world, TensorId id) {
  const auto it = world.entries.find(id);
  if (it == world.entries.end()) return table_.of(Kind::kPlace, {id.value, 0, world.base.value}, 1);
  return resolve(it->second, world);
}

Number ValueNumbers::position(const World& world, StreamId id) {
  const auto it = world.positions.find(id);
  if (it == world.positions.end()) return table_.of(Kind::kPlace, {id.value, 1, world.base.value}, 1);
  return resolve(it->second, world);
}

Number ValueNumbers::constant(TensorId id) {
  const Tensor& tensor = ir_.tensor(id);
  const auto same = [&](TensorId other) {
    const Tensor& known = ir_.tensor(other);
    const HostBytes &mine = *tensor.state.data, &its = *known.state.data;
    return known.type == tensor.type && mine.size() == its.size() &&
           (mine.data() == its.data() || std::memcmp(mine.data(), its.data(), mine.size()) == 0);
  };
  const auto it = std::ranges::find_if(constants_, same);
  const auto number = static_cast<std::uint32_t>(it - constants_.begin());
  if (it == constants_.end()) constants_.push_back(id);
  return table_.of(Kind::kConstant, {number}, 0);
}

/// The op's function: its definition, attributes and types.
std::uint32_t ValueNumbers::symbol(const Op& op) {
  std::vector<const Op*>& known = symbols_[op.def];
  const auto same = [&](const Op* other) {
    return fault_ == SolverFault::kSameAttributes || same_symbol(ir_, *other, op);
  };
  const auto it = std::ranges::find_if(known, same);
  if (it != known.end()) return (*it)->id.value;
  known.push_back(&op);
  return op.id.value;
}

/// The elements that a view shows, of its bases.
Key ValueNumbers::map_of(const View& view) const {
  Key key;
  const auto add = [&key](std::int64_t value) {
    key.push_back(static_cast<std::uint32_t>(value));
    key.push_back(static_cast<std::uint32_t>(value >> 32));
  };
  for (const ViewPart& part : view.parts) {
    add(static_cast<std::int64_t>(part.ranges.size()));
    for (const Range& range : part.ranges) {
      for (const std::int64_t value : {range.start, range.step, range.count}) add(value);
    }
    add(static_cast<std::int64_t>(part.axes.size()));
    for (const std::size_t axis : part.axes) add(static_cast<std::int64_t>(axis));
    add(static_cast<std::int64_t>(part.at.size()));
    for (const std::int64_t value : part.at) add(value);
    add(part.same_order ? 1 : 0);
  }
  return key;
}

}  // namespace popsr
