#include "popsr/analysis/explain/explain.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

struct NodeHash {
  std::size_t operator()(const Difference& node) const {
    std::uint64_t hash = node.value.frame.value;
    for (const std::uint64_t part :
         {std::uint64_t{node.value.storage.value}, static_cast<std::uint64_t>(node.value.time),
          std::uint64_t{node.value.part.value}, std::uint64_t{node.r} << 32 | node.s}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};
/// Equality of nodes: two ways to the same value and pair are one node.
struct SameNode {
  bool operator()(const Difference& a, const Difference& b) const {
    return a.value == b.value && a.r == b.r && a.s == b.s;
  }
};

/// A node that was reached, and from where.
struct Reached {
  Difference node;
  std::uint32_t from = kNone;
  std::uint32_t steps = 0;
};

/// Node to visit next: first the ones on the shortest paths, among these the farthest, then the first
/// found.
struct Candidate {
  std::uint32_t total, steps, at;
  bool operator<(const Candidate& other) const {
    if (total != other.total) return total > other.total;
    if (steps != other.steps) return steps < other.steps;
    return at > other.at;
  }
};

/// Effect of an op that makes replicas differ by itself.
RootKind own_root(const Op& op) {
  if (!op.def->has_rule()) return RootKind::kUndeclared;
  if (op.def->memory.undefined != nullptr && op.def->memory.undefined(op)) return RootKind::kUninitialised;
  const auto is_stream = [](const Attribute& attr) { return std::holds_alternative<StreamId>(attr); };
  if (std::ranges::any_of(op.attrs, is_stream)) return RootKind::kStream;
  if (op.def->replicas.zero_fill) return RootKind::kZeros;
  return op.inputs.empty() ? RootKind::kOwnValue : RootKind::kPart;
}

}  // namespace

GradientFlow& Explainer::gradients() {
  if (!gradients_) gradients_.emplace(flow_.facts());
  return *gradients_;
}

bool Explainer::separates(PartitionId fact, Replica r, Replica s) const {
  const auto labels = flow_.ir().partitions().labels(fact);
  return labels[r] != labels[s];
}

std::optional<std::pair<Replica, Replica>> Explainer::split(PartitionId block, PartitionId fact) const {
  const PartitionTable& table = flow_.ir().partitions();
  for (Replica s = 0; s < static_cast<Replica>(table.replicas()); ++s) {
    const Replica r = table.representatives(block)[table.labels(block)[s]];
    if (separates(fact, r, s)) return std::pair(r, s);
  }
  return std::nullopt;
}

/// For each partition of the program: does it separate the two?
std::vector<bool> Explainer::facts_between(Replica r, Replica s) const {
  std::vector<bool> result(flow_.ir().partitions().size());
  for (const PartitionId id : ids<PartitionId>(result.size())) result[id.index()] = separates(id, r, s);
  return result;
}

std::vector<PartitionId> Explainer::input_facts(const Value& value, const Op& op) {
  const std::vector<TensorId> inputs = all_inputs(flow_.ir(), op);
  std::vector<PartitionId> facts(inputs.size(), flow_.ir().partitions().top());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNone) continue;
    facts[i] = flow_.fact(flow_.before(value.frame, inputs[i], static_cast<std::uint32_t>(value.time)));
  }
  return facts;
}

std::optional<RootKind> Explainer::root(const Difference& node) {
  const auto [value, r, s, link, input] = node;
  if (separates(flow_.context(value.frame).exec, r, s)) return RootKind::kDivergence;
  const Op* op = flow_.writer(value);
  if (op == nullptr) {
    if (value.frame != kMainFrame) return std::nullopt;
    const PartitionId start = flow_.facts().start(value.storage);
    return separates(start, r, s) ? std::optional(RootKind::kVariable) : std::nullopt;
  }
  if (op->def->program.control == Control::kConditional &&
      separates(flow_.fact(condition(value.frame, *op)), r, s)) {
    return RootKind::kDivergence;
  }
  if (op->def->program.control != Control::kNone) return std::nullopt;
  const std::size_t output = *flow_.output(value);
  if (op->def->replicas.partition != meet_of_inputs || !op->def->has_rule()) {
    const std::vector<PartitionId> equal(all_inputs(flow_.ir(), *op).size(), flow_.ir().partitions().top());
    if (separates(rule_of(flow_.ir(), *op, equal, output), r, s)) return own_root(*op);
  }
  if (has_own_seeds(node)) {
    const PartitionId exact = rule_of(flow_.ir(), *op, input_facts(value, *op), output);
    if (!separates(exact, r, s)) return RootKind::kSeeds;
  }
  const std::optional<StreamId> stream = loaded_stream(flow_.ir(), *op);
  if (!stream) return std::nullopt;
  // All that such a load depends on besides is where its stream stands.
  return separates(flow_.facts().rows(*stream), r, s) ? RootKind::kStream : RootKind::kPosition;
}

bool Explainer::has_own_seeds(const Difference& node) const {
  const Op* op = flow_.writer(node.value);
  const std::optional<SeedRule> rule = op == nullptr ? std::nullopt : flow_.facts().seed_rule(*op);
  if (!rule || *rule == SeedRule::kPartition) return false;
  return separates(facts_of(flow_.ir(), flow_.context(node.value.frame), *op).seeds, node.r, node.s);
}

Value Explainer::condition(FrameId frame, const Op& conditional) {
  while (flow_.graph(frame).id != conditional.graph) frame = flow_.frame(frame).caller;
  return flow_.before(frame, conditional.inputs[0], conditional.schedule.position);
}

/// The first conditional of a run that parts r and s and loads the stream in a branch: from there on they are
/// at different elements.
const Op* Explainer::diverging_load(FrameId frame, StreamId stream, Replica r, Replica s,
                                    std::set<ContextId>& seen) {
  if (!seen.insert(flow_.frame(frame).context).second) return nullptr;
  for (const OpId id : flow_.graph(frame).ops) {
    const Op& op = flow_.ir().op(id);
    const std::vector<CalledGraph> called = called_graphs(flow_.ir(), op);
    const auto loads = [&](const CalledGraph& each) {
      return std::ranges::binary_search(flow_.facts().streams().of(each.graph), stream);
    };
    if (std::ranges::none_of(called, loads) || !runs_body(op)) continue;
    const bool conditional = op.def->program.control == Control::kConditional;
    if (conditional && separates(flow_.fact(condition(frame, op)), r, s)) return &op;
    for (std::uint32_t b = 0; b < called.size(); ++b) {
      const FrameId inner = flow_.enter(frame, op.schedule.position, b);
      if (const Op* found = diverging_load(inner, stream, r, s, seen)) return found;
    }
  }
  return nullptr;
}

/// The conditional that makes the node a root of that kind, if one does.
const Op* Explainer::diverging_op(const Difference& node, RootKind root) {
  const Op* op = flow_.writer(node.value);
  if (root == RootKind::kPosition) {
    std::set<ContextId> seen;
    return diverging_load(kMainFrame, *loaded_stream(flow_.ir(), *op), node.r, node.s, seen);
  }
  if (root != RootKind::kDivergence) return nullptr;
  // The outermost one around the value; else that which left it.
  const PartitionAnalysis& facts = flow_.facts();
  for (NarrowingId at = flow_.context(node.value.frame).narrowing; at != kNoNarrowing;
       at = facts.narrowing(at).outer) {
    if (separates(facts.narrowing(at).exec, node.r, node.s)) op = &flow_.ir().op(facts.narrowing(at).op);
  }
  return op;
}

/// True if that input alone would split r and s. Rules distribute over meets, so some input does if all do.
bool Explainer::explains(const Value& value, const Op& op, std::size_t output, std::size_t input, Replica r,
                         Replica s) {
  if (op.def->replicas.partition == meet_of_inputs) return op.def->influences(input);
  std::vector<PartitionId> alone = input_facts(value, op);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (i != input) alone[i] = flow_.ir().partitions().top();
  }
  return separates(rule_of(flow_.ir(), op, alone, output), r, s);
}

void Explainer::add_operand_causes(const Difference& node, std::vector<Difference>& result) {
  const Op& op = *flow_.writer(node.value);
  const auto position = static_cast<std::uint32_t>(node.value.time);
  const std::vector<TensorId> remote =
      op.def->program.remote == Remote::kNone ? std::vector<TensorId>() : all_inputs(flow_.ir(), op);
  const std::vector<TensorId>& inputs = op.def->program.remote == Remote::kNone ? op.inputs : remote;
  const auto add = [&](std::size_t input, Replica r, Replica s) {
    if (inputs[input] == kNone) return;
    const Value value = flow_.before(node.value.frame, inputs[input], position);
    if (!separates(flow_.fact(value), r, s)) return;
    result.push_back({value, r, s, Link::kOperand, static_cast<std::uint32_t>(input)});
  };
  const std::size_t output = *flow_.output(node.value);
  if (op.def->replicas.witness != nullptr) {
    std::set<std::pair<std::size_t, std::vector<bool>>> seen;
    for (const Witness& witness : op.def->replicas.witness(flow_.ir(), op, output, node.r, node.s)) {
      // Pairs that all facts treat alike lead to paths alike: the first of them is enough.
      if (seen.emplace(witness.input, facts_between(witness.r, witness.s)).second) {
        add(witness.input, witness.r, witness.s);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (explains(node.value, op, output, i, node.r, node.s)) add(i, node.r, node.s);
  }
}

std::vector<Difference> Explainer::causes(const Difference& node) {
  std::vector<Difference> result;
  const Op* op = flow_.writer(node.value);
  if (op != nullptr && op->def->program.control == Control::kNone && !op->def->memory.view) {
    add_operand_causes(node, result);
    const auto old = flow_.untouched(node.value);
    if (old && separates(flow_.fact(*old), node.r, node.s)) {
      result.push_back({*old, node.r, node.s, Link::kUntouched});
    }
    return result;
  }
  for (const Source& source : flow_.sources(node.value)) {
    if (!separates(flow_.fact(source.value), node.r, node.s)) continue;
    result.push_back({source.value, node.r, node.s, source.link, source.input});
  }
  return result;
}

/// A path on which every step is one nearer, which therefore is a shortest one; empty when the walk ends
/// before a root.
std::vector<Difference> Explainer::straight_path(const Difference& start) {
  std::vector<Difference> nodes{start};
  nodes.reserve(flow_.distance(start.value) + 1);
  while (true) {
    const Difference here = nodes.back();
    const Nearness nearest = flow_.nearness(here.value);
    if (nearest.input != kNone && separates(nearest.fact, here.r, here.s)) {
      const Value operand{here.value.frame, nearest.storage, nearest.time};
      nodes.push_back({operand, here.r, here.s, Link::kOperand, nearest.input});
      continue;
    }
    if (root(here)) return nodes;
    if (nearest.distance == 0) return {};
    const std::vector<Difference> found = causes(here);
    const auto nearer = std::ranges::find_if(
        found, [&](const Difference& cause) { return flow_.distance(cause.value) + 1 == nearest.distance; });
    if (nearer == found.end()) return {};
    nodes.push_back(*nearer);
  }
}

std::optional<std::vector<Difference>> Explainer::path(const Value& value, Replica r, Replica s,
                                                       const Difference* without, std::size_t limit) {
  std::vector<Difference> nodes;
  if (!separates(flow_.fact(value), r, s)) return nodes;
  if (without == nullptr) nodes = straight_path({value, r, s});
  if (!nodes.empty()) return nodes;
  std::vector<Reached> reached;
  std::unordered_map<Difference, std::uint32_t, NodeHash, SameNode> seen;  // to the number of steps
  std::priority_queue<Candidate> queue;
  const auto reach = [&](const Difference& node, std::uint32_t from, std::uint32_t steps) {
    if (without != nullptr && SameNode()(node, *without)) return;
    const auto [it, fresh] = seen.try_emplace(node, steps);
    if (!fresh && it->second <= steps) return;
    it->second = steps;
    queue.push({steps + flow_.distance(node.value), steps, static_cast<std::uint32_t>(reached.size())});
    reached.push_back({node, from, steps});
  };
  const auto path_to = [&](std::uint32_t at) {
    for (std::uint32_t i = at; i != kNone; i = reached[i].from) nodes.push_back(reached[i].node);
    std::ranges::reverse(nodes);
    return nodes;
  };
  std::uint32_t rounded = kNone;  // the nearest whose seeds differ, as its inputs do
  reach({value, r, s}, kNone, 0);
  while (!queue.empty()) {
    if (reached.size() > limit) return std::nullopt;
    const std::uint32_t at = queue.top().at;
    queue.pop();
    const Reached here = reached[at];
    if (seen.at(here.node) < here.steps) continue;  // a shorter way was found since
    if (root(here.node)) return path_to(at);
    if (rounded == kNone && has_own_seeds(here.node)) rounded = at;
    for (const Difference& cause : causes(here.node)) reach(cause, at, here.steps + 1);
  }
  // State that a run or iteration rounds anew differs by nothing but that.
  return path_to(rounded);
}

Explanation Explainer::explain(TensorId tensor, const Value& value, Replica r, Replica s) {
  return with_deep_stack([&] { return find_explanation(tensor, value, r, s); });
}

Explanation Explainer::find_explanation(TensorId tensor, const Value& value, Replica r, Replica s) {
  flow_.facts().check_fresh();
  const std::int64_t replicas = flow_.ir().replication();
  if (r == s || std::max(r, s) >= replicas) {
    raise<ReplicaError>("explain: no two replicas, got {} and {}, expected two of 0 to {}", r, s,
                        replicas - 1);
  }
  Explanation result{.tensor = tensor, .r = r, .s = s, .fact = flow_.fact(value), .path = {}};
  result.path = path(value, r, s).value();
  if (result.path.empty()) {
    POPSR_CHECK(!separates(result.fact, r, s));  // every difference has a cause
    result.path.push_back({value, r, s});
    return result;
  }
  result.root = root(result.path.back()).value_or(RootKind::kSeeds);
  result.conditional = diverging_op(result.path.back(), *result.root);
  const bool diverges = result.root == RootKind::kDivergence;
  result.root_location =
      diverges ? result.conditional->origin.location : location_of(flow_, result.path.back().value);
  result.root_text = root_text(flow_, result);
  result.suggestion = suggestion(*this, result);
  return result;
}

}  // namespace popsr
