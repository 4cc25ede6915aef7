// Suggestions: the first place on a path where a collective makes replicas equal.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/gradients/gradient_advice.h"
#include "popsr/base/error.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

// A check that a value is the only cause looks at so many values at most.
constexpr std::size_t kMaxSearch = 4096;
// More replicas have too many groupings to try them all.
constexpr std::int64_t kMaxTried = 64;

bool is_state(const Ir& ir, TensorId storage) {
  const TensorKind kind = ir.tensor(storage).kind;
  return kind == TensorKind::kVariable || kind == TensorKind::kShard || kind == TensorKind::kRemote;
}

/// The fact of an all-reduce over the groups.
PartitionId reduced(PartitionTable& table, PartitionId fact, const ReplicaGrouping& group) {
  std::map<std::vector<std::uint32_t>, std::uint64_t> known;
  std::vector<std::uint64_t> keys;
  for (Replica r = 0; r < static_cast<Replica>(table.replicas()); ++r) {
    std::vector<std::uint32_t> classes;
    for (const Replica member : group.members(r)) classes.push_back(table.labels(fact)[member]);
    keys.push_back(known.try_emplace(std::move(classes), known.size()).first->second);
  }
  return table.from_keys(keys);
}

/// The smallest groups of constant stride over which an all-reduce makes blocks of `wanted` equal.
std::optional<ReplicaGrouping> smallest_group(PartitionTable& table, PartitionId fact, PartitionId wanted) {
  const std::int64_t replicas = table.replicas();
  for (std::int64_t size = 2; size <= replicas && replicas <= kMaxTried; ++size) {
    for (std::int64_t stride = 1; stride * size <= replicas; ++stride) {
      if (replicas % (stride * size) != 0) continue;
      auto group = ReplicaGrouping::from_stride(replicas, stride, size);
      if (table.refines(wanted, reduced(table, fact, group))) return group;
    }
  }
  return wanted == table.top() ? std::optional(ReplicaGrouping::from_stride(replicas)) : std::nullopt;
}

/// "replicated_all_reduce('g', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4))"
std::string collective_text(const Ir& ir, TensorId tensor, PartitionId fact, PartitionId wanted) {
  const auto group = smallest_group(ir.partitions(), fact, wanted);
  std::string groups = fmt::format("groups {}", ir.partitions().to_string(wanted));
  if (group) {
    groups =
        fmt::format("ir.replica_grouping(stride={}, group_size={})", group->stride(), group->group_size());
  }
  const bool floats = is_float(ir.tensor(tensor).type.dtype);
  const std::string& name = ir.tensor(tensor).name;
  // Copies of a value are averaged, parts of a sum are added: which of the two they are, analysis cannot
  // tell.
  return floats ? fmt::format("replicated_all_reduce('{}', 'mean' or 'add', {})", name, groups)
                : fmt::format("replicated_broadcast('{}', 0, {})", name, groups);
}

/// Node of the path whose value flows into state: an operand of a write other than the value that is
/// overwritten, if possible one that is not state itself. 0 if there is none.
std::size_t first_operand_of_state(const Dataflow& flow, const std::vector<Difference>& path) {
  bool in_state = false;
  std::size_t found = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const bool state = is_state(flow.ir(), path[i].value.storage);
    if (found != 0 && !state && path[i].value.frame == kMainFrame) break;  // the path left state
    in_state = in_state || state;
    if (!in_state || path[i + 1].link != Link::kOperand) continue;
    const bool overwritten = flow.writer(path[i].value)->def->writes(path[i + 1].input);
    if (overwritten || path[i + 1].value.storage == path[i].value.storage) continue;
    found = i + 1;
    if (!is_state(flow.ir(), path[found].value.storage)) break;
  }
  return found;
}

/// Declared partition of the state at the start of the path; all replicas when it is not a state.
PartitionId wanted_fact(const Ir& ir, const std::vector<Difference>& path) {
  for (const Difference& node : path) {
    if (!is_state(ir, node.value.storage)) continue;
    const PartitionId declared = declared_fact(ir, node.value.storage);
    const auto labels = ir.partitions().labels(declared);
    if (labels[node.r] == labels[node.s]) return declared;
  }
  return ir.partitions().top();
}

/// Suggestion for causes that have one whatever depends on them; "" when that decides.
std::string root_suggestion(Explainer& explainer, const Explanation& explanation) {
  const std::vector<Difference>& path = explanation.path;
  const RootKind root = *explanation.root;
  const Ir& ir = explainer.flow().ir();
  const std::string root_place = place_text(ir, explanation.root_location);
  if (root == RootKind::kUninitialised)
    return fmt::format("write to it, or init it with 'zero', at {}", root_place);
  if (root == RootKind::kSeeds) return "let stochastic rounding follow the partitions: mode 'partition'";
  if (root == RootKind::kZeros) return fmt::format("send to all replicas at {}", root_place);
  if (root == RootKind::kUndeclared) return fmt::format("give the op at {} a partition rule", root_place);
  if (root == RootKind::kStream && path.size() == 1) {
    return fmt::format(
        "feed all replicas the same: replicated_stream_mode='broadcast' or 'equal' of the stream at {}",
        root_place);
  }
  if (root == RootKind::kPosition) {
    return fmt::format("load the stream outside of {} at {}",
                       condition_source(ir, *explanation.conditional).by->def->name,
                       place_text(ir, explanation.conditional->origin.location));
  }
  if (root == RootKind::kDivergence) {
    const Op& conditional = *explanation.conditional;
    const PartitionId fact = explainer.flow().fact(explainer.condition(path.back().value.frame, conditional));
    const ConditionSource asked = condition_source(ir, conditional);
    if (asked.by != &conditional) {
      return fmt::format("make its condition equal: {} in graph '{}' of {}",
                         collective_text(ir, asked.condition, fact, wanted_fact(ir, path)),
                         ir.graph(ir.tensor(asked.condition).graph).name, root_place);
    }
    return fmt::format("make its condition equal: {} before {}",
                       collective_text(ir, conditional.inputs[0], fact, wanted_fact(ir, path)), root_place);
  }
  if (root == RootKind::kVariable && differs_since(explainer.flow().facts(), path.back())) {
    return fmt::format("write '{}' from the host again, or load a checkpoint",
                       ir.tensor(path.back().value.storage).name);
  }
  const Tensor& source = ir.tensor(path.back().value.storage);
  const bool sharded =
      source.state.resident != kNone && ir.tensor(source.state.resident).state.shard_over > 1;
  if (root == RootKind::kPart || (root == RootKind::kVariable && sharded)) {
    return fmt::format("put the parts together: replicated_all_gather('{}') after {}", source.name,
                       root_place);
  }
  return "";
}

/// The advice of a gradient lint at an op of the path; of a variable's gradient that no op of the path is to
/// blame for, of the first fork: a sum that makes replicas equal need not make gradients right.
std::string gradient_suggestion(Explainer& explainer, const std::vector<Difference>& path) {
  const GradientFlow& gradients = explainer.gradients();
  std::string first;
  for (const GradientFinding& finding : gradients.findings()) {
    const bool on_path = std::ranges::any_of(path, [&](const Difference& node) {
      const Op* const writer = explainer.flow().writer(node.value);
      return writer != nullptr && writer->id == finding.op;
    });
    std::string help = on_path || first.empty() ? advice(gradients, finding) : "";
    if (on_path && !help.empty()) return help;
    if (finding.fault == GradientFault::kFork && first.empty()) first = std::move(help);
  }
  return gradients.is_differentiated(path[0].value.storage) ? first : "";
}

}  // namespace

std::string suggestion(Explainer& explainer, const Explanation& explanation) {
  if (std::string text = gradient_suggestion(explainer, explanation.path); !text.empty()) return text;
  std::string of_root = root_suggestion(explainer, explanation);
  if (!of_root.empty()) return of_root;
  const std::vector<Difference>& path = explanation.path;
  Dataflow& flow = explainer.flow();
  const Ir& ir = flow.ir();
  const std::size_t at = first_operand_of_state(flow, path);
  const Difference& node = path[at];
  const PartitionId wanted = at == 0 ? ir.partitions().top() : wanted_fact(ir, path);
  const std::string place = place_text(ir, location_of(flow, path[at == 0 ? 0 : at - 1].value));
  const PartitionId fact = flow.fact(node.value);
  if (at == 0) {
    return fmt::format("{} after {}", collective_text(ir, explanation.tensor, fact, wanted), place);
  }
  const auto other = explainer.path(path[0].value, path[0].r, path[0].s, &node, kMaxSearch);
  const bool only = other && other->empty();
  return fmt::format("{} before {}{}", collective_text(ir, node.value.storage, fact, wanted), place,
                     only ? "" : ", and the same for what else differs there");
}

}  // namespace popsr
