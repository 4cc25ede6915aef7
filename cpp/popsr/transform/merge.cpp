#include "popsr/transform/merge.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/effects/op_order.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr {
namespace {

/// Ops of equal keys may become one op of the definition `merged`.
struct MergeKey {
  std::string_view merged;
  std::optional<CollectiveOp> reduction = {};
  std::vector<std::int64_t> groups = {};  ///< Group of each replica.
  auto operator<=>(const MergeKey&) const = default;
};
/// Merge key of a single op; nullopt: the op is not merged.
using KeyOf = std::function<std::optional<MergeKey>(const Op&)>;

std::optional<MergeKey> collective_key(const Ir& ir, const Op& op) {
  const ReplicaAspect& replicas = op.def->replicas;
  if (replicas.merged.empty()) return std::nullopt;
  MergeKey key{.merged = replicas.merged, .groups = group_of(ir, op).assignment()};
  if (replicas.collective == Collective::kReduce) key.reduction = op.get(kReduction);
  return key;
}

std::optional<MergeKey> exchange_key(const Op& op) {
  if (op.def->program.merged.empty()) return std::nullopt;
  return MergeKey{.merged = op.def->program.merged};
}

/// Grows groups of ops in schedule order: an op joins the first group of its key that it depends on through
/// nothing but explicit order, and through nobody else. (Groups of one op stay that op.)
class Merger {
 public:
  Merger(const Ir& ir, GraphId graph, std::uint32_t first, const KeyOf& key_of)
      : ops_(ir.graph(graph).ops.begin() + first, ir.graph(graph).ops.end()),
        order_(ir, graph, first),
        visited_(ops_.size(), 0) {
    for (std::uint32_t at = 0; at < ops_.size(); ++at) {
      node_.push_back(at);
      members_.push_back({at});
      const Op& op = ir.op(ops_[at]);
      const Op& single = op.schedule.parts.empty() ? op : ir.op(op.schedule.parts.front());
      if (const auto key = key_of(single)) add(at, *key);
    }
  }

  bool found() const { return found_; }

  /// The merged schedule: each group where its last op was, ops that follow from it behind it.
  std::vector<ScheduleSlot> schedule() const {
    std::vector<std::size_t> waiting(ops_.size(), 0);
    std::vector<std::vector<std::uint32_t>> after(ops_.size());
    for (std::uint32_t at = 0; at < ops_.size(); ++at) {
      for (const OpOrder::Edge& edge : order_.before(at)) {
        if (node_[edge.before] == node_[at]) continue;
        after[node_[edge.before]].push_back(node_[at]);
        ++waiting[node_[at]];
      }
    }
    using Entry = std::pair<std::uint32_t, std::uint32_t>;  // last position, node
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](std::uint32_t node) { ready.emplace(members_[node].back(), node); };
    for (std::uint32_t node = 0; node < ops_.size(); ++node) {
      if (node_[node] == node && waiting[node] == 0) push(node);
    }
    std::vector<ScheduleSlot> slots;
    while (!ready.empty()) {
      const std::uint32_t node = ready.top().second;
      ready.pop();
      ScheduleSlot& slot = slots.emplace_back();
      for (const std::uint32_t at : members_[node]) slot.ops.push_back(ops_[at]);
      if (slot.ops.size() > 1) slot.merged = names_.at(node);
      for (const std::uint32_t next : after[node]) {
        if (--waiting[next] == 0) push(next);
      }
    }
    return slots;
  }

 private:
  void add(std::uint32_t at, const MergeKey& key) {
    first_ = std::min(first_, at);
    std::vector<std::uint32_t>& groups = groups_[key];
    if (!groups.empty()) find_ancestors(at);
    for (const std::uint32_t group : groups) {
      if (visited_[group] == stamp_) continue;
      node_[at] = group;
      members_[group].push_back(at);
      members_[at].clear();
      found_ = true;
      return;
    }
    groups.push_back(at);
    names_[at] = key.merged;
  }

  /// Marks the nodes that the op follows in a way that forbids joining them.
  void find_ancestors(std::uint32_t at) {
    ++stamp_;
    std::vector<std::uint32_t> stack;
    std::vector<std::uint32_t> entered;  // directly and by explicit order only: not forbidden for that
    const auto forbid = [&](std::uint32_t node) {
      if (visited_[node] == stamp_) return;
      visited_[node] = stamp_;
      stack.push_back(node);
    };
    for (const OpOrder::Edge& edge : order_.before(at)) {
      if (edge.data) {
        forbid(node_[edge.before]);
      } else {
        entered.push_back(node_[edge.before]);
      }
    }
    const auto expand = [&](std::uint32_t node) {
      // No group holds an op before first_, so nothing before it follows from a group.
      if (members_[node].back() < first_) return;
      for (const std::uint32_t member : members_[node]) {
        for (const OpOrder::Edge& edge : order_.before(member)) {
          if (node_[edge.before] != node) forbid(node_[edge.before]);
        }
      }
    };
    for (const std::uint32_t node : entered) expand(node);
    while (!stack.empty()) {
      const std::uint32_t node = stack.back();
      stack.pop_back();
      expand(node);
    }
  }

  std::vector<OpId> ops_;  ///< From the first position on; indices count from there.
  OpOrder order_;
  /// First position of the group of each position; the position itself if alone.
  std::vector<std::uint32_t> node_;
  std::vector<std::vector<std::uint32_t>> members_;  ///< Members of each node, ascending.
  std::map<MergeKey, std::vector<std::uint32_t>> groups_;
  std::map<std::uint32_t, std::string_view> names_;
  std::vector<std::uint32_t> visited_;  ///< Stamp of the last question that reached each node.
  std::uint32_t stamp_ = 0;
  std::uint32_t first_ = kNone;  ///< The first position of any group.
  bool found_ = false;
};

/// Merges ops of one graph; returns the number of ops by which the schedule got shorter.
std::size_t merge_in(Ir& ir, GraphId graph, std::uint32_t first, const KeyOf& key_of) {
  const std::size_t before = ir.graph(graph).ops.size();
  const Merger merger(ir, graph, first, key_of);
  if (!merger.found()) return 0;
  GraphEditor(ir).replace_schedule(graph, first, merger.schedule());
  return before - ir.graph(graph).ops.size();
}

// Facts before and after

using Digest = std::vector<std::tuple<std::variant<TensorId, OpId>, std::uint32_t, PartitionId>>;

/// Facts of the tensors and seeds of the ops of one context: (tensor or op, n-th time, partition).
Digest digest_of(const Ir& ir, const Context& context) {
  Digest digest;
  std::map<TensorId, std::uint32_t> times;
  const auto add = [&](const Op& op, const FactView& facts) {
    const std::vector<TensorId> outputs = all_outputs(ir, op);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      digest.emplace_back(outputs[k], times[outputs[k]]++, facts.outputs[k]);
    }
    for (const auto& [storage, fact] : facts.written) digest.emplace_back(storage, times[storage]++, fact);
    digest.emplace_back(op.id, 0, facts.seeds);
  };
  const std::vector<OpId>& ops = ir.graph(context.graph).ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ir.op(ops[i]);
    if (op.schedule.parts.empty()) add(op, context.ops[i]);
    for (std::size_t p = 0; p < op.schedule.parts.size(); ++p)
      add(ir.op(op.schedule.parts[p]), context.parts.at(op.schedule.position)[p]);
  }
  std::ranges::sort(digest);
  return digest;
}

/// All facts of a program, whatever the order of its ops.
struct AllFacts {
  explicit AllFacts(const Ir& ir) {
    const PartitionAnalysis facts(ir, SeedRules(SeedRule::kPartition));  // whose seeds follow the facts
    for (const GraphId graph : ids<GraphId>(ir.num_graphs())) {
      for (const ContextId id : facts.contexts(graph)) {
        const Context& context = facts.context(id);
        contexts.emplace_back(graph, context.exec, context.inputs, context.end.memory->all(),
                              context.end.remote, digest_of(ir, context));
      }
    }
    std::ranges::sort(contexts);
  }
  using Facts = std::vector<PartitionId>;
  std::vector<std::tuple<GraphId, PartitionId, Facts, Facts, Facts, Digest>> contexts;
};

std::size_t merge_everywhere(Ir& ir, const KeyOf& key_of) {
  verify(ir);
  const AllFacts before(ir);
  Transaction transaction(ir);
  std::size_t merged = 0;
  for (const GraphId graph : ids<GraphId>(ir.num_graphs())) merged += merge_in(ir, graph, 0, key_of);
  if (merged > 0) POPSR_CHECK(AllFacts(ir).contexts == before.contexts);
  transaction.commit();
  return merged;
}

}  // namespace

std::size_t merge_collectives(Ir& ir) {
  return merge_everywhere(ir, [&ir](const Op& op) { return collective_key(ir, op); });
}

std::size_t merge_exchange(Ir& ir) { return merge_everywhere(ir, exchange_key); }

std::size_t merge_exchange_since(Ir& ir, GraphId graph, std::uint32_t first) {
  POPSR_CHECK(first <= ir.graph(graph).ops.size());
  Transaction transaction(ir);
  merge_in(ir, graph, first, exchange_key);
  const std::vector<OpId>& ops = ir.graph(graph).ops;
  const auto left = std::count_if(ops.begin() + first, ops.end(), [&](OpId id) {
    const Op& op = ir.op(id);
    return exchange_key(op.schedule.parts.empty() ? op : ir.op(op.schedule.parts.front())).has_value();
  });
  transaction.commit();
  return static_cast<std::size_t>(left);
}

}  // namespace popsr
